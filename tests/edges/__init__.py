"""What users do at the edges, through commands, ports and files."""
