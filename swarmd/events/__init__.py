"""What happened: the record of it, the table of its kinds, the file it is kept in, and what stands unsolved."""
