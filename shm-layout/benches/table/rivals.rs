//! The mechanisms with which the lock is compared, and the means to run two processes against each other.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use shm_layout::clock;

pub struct Child(i32);

/// Runs `work` in a forked child, which then ends.
pub fn fork(work: impl FnOnce()) -> Child {
    // SAFETY: the bench has one thread whenever it forks; the child runs `work` and ends without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            work();
            std::process::exit(0);
        }
        pid => Child(pid),
    }
}

impl Child {
    pub fn kill(&self) {
        // SAFETY: it is our own child and not waited for yet.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    pub fn wait(&self) {
        let mut status = 0;
        // SAFETY: `status` is a live local.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
    }
}

/// Pins this thread to one CPU; a number beyond the last CPU allows all.
pub fn pin(cpu: usize) {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for one in 0..all.max(2) {
        if cpu >= all || one == cpu {
            // SAFETY: the set is a live local and larger than these numbers.
            unsafe { libc::CPU_SET(one, &mut set) };
        }
    }
    // SAFETY: the set outlives the call.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// Keeps a CPU from halting, at the lowest priority: a halted CPU takes 20 us to wake up.
pub fn awake(cpu: usize) -> Child {
    fork(|| {
        pin(cpu);
        let lowest = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameter outlives the call.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const lowest) };
        loop {
            std::hint::spin_loop();
        }
    })
}

/// Words that the forked processes share.
#[repr(C)]
pub struct PingPong {
    turn: AtomicU32,
    met: AtomicU32,
    last: AtomicU64,
    changes: AtomicU64,
}

impl PingPong {
    /// Maps a page that every child forked later shares; it is never unmapped.
    pub fn shared() -> &'static PingPong {
        let file = tempfile::tempfile_in("/dev/shm").expect("a file");
        file.set_len(4096).expect("a page");
        let page: &'static memmap2::MmapRaw = Box::leak(Box::new(
            memmap2::MmapOptions::new().map_raw(&file).expect("mapped"),
        ));
        // SAFETY: a zeroed page holds the words, and they are atomics.
        unsafe { &*page.as_ptr().cast::<PingPong>() }
    }

    /// Waits until `all` processes have arrived.
    pub fn meet(&self, all: u32) {
        self.met.fetch_add(1, SeqCst);
        while self.met.load(SeqCst) < all {
            std::thread::yield_now();
        }
    }
}

fn futex_call(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word is shared memory that is never unmapped.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            std::ptr::null::<u8>(),
        )
    };
}

/// A side of a hand-off.
pub trait Side {
    /// Waits for our turn. Returns false if there was no wait.
    fn wait(&mut self) -> bool;
    /// Gives the turn to the other side.
    fn give(&mut self);
    /// Returns true if the other side is known to wait, or if that cannot be known.
    fn other_waits(&self) -> bool {
        true
    }
}

/// Runs both sides and returns the median time from the call that gives the turn to the return of the call that waits. Before
/// each hand-off the other side has gone to sleep.
pub fn hand_off<S: Side>(cpus: [usize; 2], rounds: u32, side: impl Fn(u32) -> S) -> f64 {
    let shared = PingPong::shared();
    let run = |me: u32| {
        pin(cpus[me as usize]);
        let mut side = side(me);
        shared.meet(2);
        let mut times = Vec::with_capacity(rounds as usize);
        for _ in 0..rounds {
            if side.wait() {
                times.push(clock::now() - shared.last.load(SeqCst));
            }
            settle(cpus[0] == cpus[1], &side);
            shared.last.store(clock::now(), SeqCst);
            side.give();
        }
        times
    };
    let child = fork(|| drop(run(1)));
    let mut times = run(0);
    child.wait();
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(f64::NAN, |median| *median as f64)
}

/// Gives the other side time to fall asleep.
fn settle(same_cpu: bool, side: &impl Side) {
    if same_cpu {
        (0..2).for_each(|_| std::thread::yield_now());
    } else {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(30) {
            std::hint::spin_loop();
        }
    }
    for _ in 0..2000 {
        if side.other_waits() {
            break;
        }
        std::thread::yield_now();
    }
}

/// A side of a turn word: the word, this side's number, and the function that sleeps until the word changes.
struct Futex(&'static PingPong, u32, fn(&PingPong, u32));

impl Side for Futex {
    fn wait(&mut self) -> bool {
        let mut slept = false;
        while self.0.turn.load(SeqCst) != self.1 {
            (self.2)(self.0, 1 - self.1);
            slept = true;
        }
        slept
    }

    fn give(&mut self) {
        self.0.turn.store(1 - self.1, SeqCst);
        futex_call(&self.0.turn, libc::FUTEX_WAKE, 1);
    }
}

/// Measures the minimum: a word, a wait, a wake.
pub fn futex(cpus: [usize; 2], rounds: u32) -> f64 {
    let shared = PingPong::shared();
    let sleep = |shared: &PingPong, seen| futex_call(&shared.turn, libc::FUTEX_WAIT, seen);
    hand_off(cpus, rounds, |me| Futex(shared, me, sleep))
}

/// Measures the hand-off with a waiter that also watches a second word for the other's death, and sleeps at most 50 ms: the
/// kernel's cost of a wait that cannot hang.
pub fn watched_futex(cpus: [usize; 2], rounds: u32) -> f64 {
    #[repr(C)]
    struct WaitV {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    fn sleep(shared: &PingPong, seen: u32) {
        let words = [(&shared.turn, seen), (&shared.met, 2)].map(|(word, value)| WaitV {
            value: value.into(),
            address: word.as_ptr() as u64,
            flags: 2,
            reserved: 0,
        });
        // SAFETY: all zero is a time.
        let mut until: libc::timespec = unsafe { std::mem::zeroed() };
        // SAFETY: `until` is a live local.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) };
        until.tv_sec += 1; // one tick later, as with 50 ms
        let (words, until) = (words.as_ptr(), &raw const until);
        // SAFETY: the words are never unmapped, array and time outlive the call.
        unsafe { libc::syscall(449, words, 2, 0, until, libc::CLOCK_MONOTONIC) };
    }
    let shared = PingPong::shared();
    shared.met.store(2, SeqCst);
    hand_off(cpus, rounds, |me| Futex(shared, me, sleep))
}

/// Measures how fast the kernel itself reports a death, without a lock: from the kill to the return of a process that sleeps on
/// a robust futex.
pub fn robust(ballast: impl Fn() -> Vec<u8>) -> Duration {
    #[repr(C)]
    struct Head {
        list: *mut Node,
        offset: libc::c_long,
        pending: *mut Node,
    }
    #[repr(C)]
    struct Node(*mut Node);
    let (ready, shared) = (PingPong::shared(), PingPong::shared());
    let child = fork(|| {
        let ballast = ballast();
        std::hint::black_box(&ballast);
        let mut node = Node(std::ptr::null_mut());
        let place = &raw mut node;
        let offset = shared.turn.as_ptr() as libc::c_long - place as libc::c_long;
        let mut head = Head {
            list: place,
            offset,
            pending: std::ptr::null_mut(),
        };
        node.0 = (&raw mut head).cast();
        // SAFETY: takes nothing.
        let tid = unsafe { libc::gettid() } as u32;
        shared.turn.store(tid | 0x8000_0000, SeqCst);
        // SAFETY: the list stays on this stack until the kernel has walked it at the process's death.
        unsafe {
            libc::syscall(
                libc::SYS_set_robust_list,
                &raw const head,
                size_of::<Head>(),
            )
        };
        ready.meet(2);
        std::thread::sleep(Duration::from_secs(60));
        std::hint::black_box((&node, &head));
    });
    ready.meet(2);
    let seen = shared.turn.load(SeqCst);
    let took = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            while shared.turn.load(SeqCst) == seen {
                futex_call(&shared.turn, libc::FUTEX_WAIT, seen);
            }
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(5));
        let killed = Instant::now();
        child.kill();
        waiter.join().expect("no panic") - killed
    });
    child.wait();
    took
}

/// Measures the hand-off with two SysV semaphores.
pub fn semaphore(cpus: [usize; 2], rounds: u32) -> f64 {
    struct Semaphores(i32, u32);
    impl Semaphores {
        fn step(&self, which: u32, by: i16) {
            let mut operation = libc::sembuf {
                sem_num: which as u16,
                sem_op: by,
                sem_flg: 0,
            };
            // SAFETY: one operation on our own set.
            unsafe { libc::semop(self.0, &raw mut operation, 1) };
        }
    }
    impl Side for Semaphores {
        fn wait(&mut self) -> bool {
            self.step(self.1, -1);
            true
        }

        fn give(&mut self) {
            self.step(1 - self.1, 1);
        }
    }
    // SAFETY: a private set of two.
    let set = unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) };
    Semaphores(set, 0).step(0, 1);
    let ns = hand_off(cpus, rounds, |me| Semaphores(set, me));
    // SAFETY: removes our own set.
    unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
    ns
}

/// Measures the hand-off through a daemon that receives a release and notifies the other side.
pub fn daemon(cpus: [usize; 2], rounds: u32) -> f64 {
    struct Client(UnixStream, bool);
    impl Side for Client {
        fn wait(&mut self) -> bool {
            let first = std::mem::take(&mut self.1);
            if !first {
                let _ = self.0.read(&mut [0]);
            }
            !first
        }

        fn give(&mut self) {
            let _ = self.0.write(&[0]);
        }
    }
    let (mut first, first_end) = UnixStream::pair().expect("sockets");
    let (mut second, second_end) = UnixStream::pair().expect("sockets");
    let server = fork(|| {
        pin(cpus[1]);
        let mut byte = [0];
        for _ in 0..rounds {
            let _ = first.read(&mut byte).and_then(|_| second.write(&byte));
            let _ = second.read(&mut byte).and_then(|_| first.write(&byte));
        }
    });
    let ends = [&first_end, &second_end];
    let ns = hand_off(cpus, rounds, |me| {
        Client(ends[me as usize].try_clone().expect("a socket"), me == 0)
    });
    server.wait();
    ns
}

/// Runs two processes with `flock` in a loop. Returns the time of an acquisition, and how often the owner changes, in per cent.
pub fn flock(dir: &Path, rounds: u32) -> (f64, f64) {
    let path = dir.join("flock");
    File::create(&path).expect("a file");
    let shared = PingPong::shared();
    let run = |me: u64| {
        pin(me as usize);
        let file = File::open(&path).expect("a file");
        shared.meet(2);
        for _ in 0..rounds {
            // SAFETY: our own open file.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
            if shared.last.swap(me + 1, SeqCst) != me + 1 {
                shared.changes.fetch_add(1, SeqCst);
            }
            // SAFETY: as above.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        }
    };
    let begun = Instant::now();
    let child = fork(|| run(1));
    run(0);
    child.wait();
    let all = f64::from(2 * rounds);
    (
        begun.elapsed().as_nanos() as f64 / all,
        shared.changes.load(SeqCst) as f64 * 100.0 / all,
    )
}
