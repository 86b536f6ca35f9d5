//! libgpushare.so: the preload that interposes the CUDA driver API.
