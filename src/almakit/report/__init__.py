"""Reports: run folders to a page, figures and tables. Reads records only and never imports torch; nothing is imported
here."""
