"""Export to other programs: Prometheus, OpenTelemetry, files."""
