"""One offline page that shows a report: pure functions make its data and its geometry, a template makes the page."""
