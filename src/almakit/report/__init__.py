"""Reports of run folders: page, figures and tables. Reads records only and never imports torch. Nothing is imported
here."""
