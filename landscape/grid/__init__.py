"""The landscape file: what it holds, and how it is read and written whole."""
