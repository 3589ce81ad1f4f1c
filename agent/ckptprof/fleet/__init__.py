"""The fleet as files: what nodes write to an inbox, merged by day, and the questions about it in SQL."""
