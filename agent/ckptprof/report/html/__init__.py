"""An offline page of a report: pure functions produce its data and geometry, a template the page."""
