"""The networks one event at a time: the numbers of bulk inference, from what is kept of the events before."""
