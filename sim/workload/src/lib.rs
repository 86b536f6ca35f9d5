//! A small driver-API client: the demo's workload, the doctor's probe and the tests' guinea pig.
