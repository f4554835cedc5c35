"""What is handed to users: `python -m delivery.bundle` makes a folder for hosts without Python."""
