"""Tasks, who does them, and the journal by which a job resumes."""
