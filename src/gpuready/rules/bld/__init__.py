"""What builds."""
