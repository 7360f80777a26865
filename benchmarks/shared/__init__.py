"""What more than one folder of benchmarks needs."""
