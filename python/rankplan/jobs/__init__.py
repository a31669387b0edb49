"""Job files: what a user states about a job beside the trainer's config, for every dialect and every command."""
