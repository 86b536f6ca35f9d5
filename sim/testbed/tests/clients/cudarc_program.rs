//! cudarc, unmodified, on the simulator.
//!
//! The program is the ignored test below: this test starts itself again in a simulated world.

#![allow(unsafe_code, reason = "cudarc's launch is unsafe to call")]

use std::io::Write;

use cudarc::driver::{
    CudaContext, CudaEvent, DriverError, LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc::Ptx;

use crate::each_way::each_way;

const PTX: &str = "
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin_us_2000(.param .u64 anything) { ret; }
";

#[test]
fn cudarc_copies_launches_times_and_meets_the_end_of_memory() {
    let run = each_way(std::env::current_exe().unwrap(), |command| {
        command.args([
            "--exact",
            "cudarc_program::guest",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
    });
    assert!(
        run.printed.contains("all is as it should be"),
        "{}",
        run.printed
    );
    assert_eq!(run.kernels, 3);
}

#[test]
#[ignore = "the program that the other test runs in a simulated world"]
fn guest() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    assert_eq!(context.name()?, "Simulated GPU");
    assert!(result::mem_get_info()?.0 > 0);

    let (stream, other) = (context.new_stream()?, context.new_stream()?);
    let numbers: Vec<u32> = (0..1 << 16).collect();
    let on_device = stream.clone_htod(&numbers)?;
    let copied = stream.clone_dtod(&on_device)?;
    other.wait(&stream.record_event(None)?)?;
    assert_eq!(other.clone_dtoh(&copied)?, numbers);
    let zeros = stream.alloc_zeros::<u32>(1000)?;
    assert_eq!(stream.clone_dtoh(&zeros)?, vec![0; 1000]);

    let kernel = context
        .load_module(Ptx::from_src(PTX))?
        .load_function("spin_us_2000")?;
    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(timed)?;
    for _ in 0..3 {
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&7_u64);
        // SAFETY: the kernel takes one u64 and touches no memory.
        unsafe { launch.launch(LaunchConfig::for_num_elems(1024)) }?;
    }
    let end: CudaEvent = stream.record_event(timed)?;
    let took = start.elapsed_ms(&end)?;
    assert!(took >= 5.9, "three kernels of 2 ms took {took} ms");

    let refused = stream.alloc_zeros::<u8>(1 << 50).map(drop).unwrap_err();
    assert_eq!(refused.0, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    writeln!(std::io::stdout(), "all is as it should be").unwrap();
    Ok(())
}
