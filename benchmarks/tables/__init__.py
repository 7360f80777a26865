"""How the program reads tables: its warnings, and its features of large categories."""
