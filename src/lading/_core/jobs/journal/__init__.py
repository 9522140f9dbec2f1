"""The journal of a job: what it does, which tasks are done, and how a job that died goes on."""
