"""The program behind `aimfor fit`: from files to a model folder, scores and a page. It needs the extra `cli`."""
