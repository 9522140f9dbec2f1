"""The parts of lading that are not for users: they may change in any release."""
