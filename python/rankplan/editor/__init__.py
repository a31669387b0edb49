"""The language server: what `rankplan.check` finds, in an editor while a config is written."""
