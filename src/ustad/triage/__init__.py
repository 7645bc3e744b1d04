"""What becomes of alerts once they are there: rules that hide, weights learnt from verdicts, days of everybody,
meetings of several people, and lists for other tools. Scores stay as they are."""
