"""Import other people's logs. Each kind of log has the rule of its source, and no rule uses a published figure."""
