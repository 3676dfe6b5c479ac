"""The timeline of a step: what each worker does when, and why it takes that long."""
