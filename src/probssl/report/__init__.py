"""Reports: tables for the terminal (`console`), figures, and self-contained HTML pages (`run_page`)."""
