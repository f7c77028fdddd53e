"""What heads of the zoo share with each other and with no head of the core."""
