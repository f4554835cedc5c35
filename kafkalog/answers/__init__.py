"""What people ask: searches, sizes, reports, bytes explained."""
