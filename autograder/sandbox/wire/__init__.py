"""What both sides know: limits, the filter, and the form of what is sent."""
