//! The simulated GPU: the model that libcuda.so.1 and libnvidia-ml.so.1 of this room share.
