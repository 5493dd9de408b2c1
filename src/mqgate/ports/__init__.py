"""The seams: one Protocol per file, spoken in domain verbs."""
