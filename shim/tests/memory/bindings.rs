use gpushare_testbed::{Testbed, Watched, python};

use crate::client::app;

const TOLD: &str = "total 8
info [5, 8]
refused CUDA_ERROR_OUT_OF_MEMORY
refused CUDA_ERROR_OUT_OF_MEMORY
nvml [8, 0, 8]
info [8, 8]
";

#[test]
fn nvidias_python_bindings_live_within_the_quota_in_both_stream_modes() {
    let Some(python) = python(&["cuda-bindings==13.5.0", "nvidia-ml-py==13.615.71"]) else {
        return;
    };
    for per_thread_streams in ["0", "1"] {
        let bed = Testbed::new();
        let mut command = bed.preloaded(&python);
        command
            .arg(app("quota.py"))
            .env("GPUSHARE_MEMORY", "8MiB")
            .env(
                "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM",
                per_thread_streams,
            );
        let (printed, said) = Watched::spawn(&mut command).succeed();
        assert_eq!(printed, TOLD, "{said}");
    }
}
