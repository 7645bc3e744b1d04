"""From a trained network to uncertainty, scores and reasons."""
