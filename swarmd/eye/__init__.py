"""The eye as a supervised child process."""
