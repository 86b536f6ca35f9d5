//! The state of the model, its steps, and its invariants.

use super::phase::{self, GateInputs, Phase};

#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// True if each submission is counted and the turn is decided again after it; false if the gate is open for a slice.
    pub counted: bool,
    pub submissions: [u8; 2],
    /// Number of times the operator pauses or resumes.
    pub pauses: u8,
    /// Number of times the process may be evicted.
    pub evictions: u8,
    /// Number of times another process may take the free lock.
    pub holds: u8,
    /// Number of times the lock is forced away from our process.
    pub forced: u8,
    pub exits: bool,
    /// True if a drain waits for the threads inside; false checks that the model notices the fault.
    pub barrier: bool,
}

/// The word that suspends driver calls while the process is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Calls {
    Run,
    Suspended,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Nobody,
    Us,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Inside {
    Outside,
    Submitting,
    Elsewhere,
}

/// The steps of the end of a turn, for any thread that stops it: `Turn::stop`, `drain`, `hand_over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Stop,
    Drain,
    Release,
    Freed,
}

/// The position of an application thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// In the program.
    Home,
    /// Inside, before it reads the gate; the fast path reads it first.
    Gate {
        fast: bool,
    },
    /// Before `admission::decide`.
    Decide,
    /// Inside, before it reads the suspension word.
    ReadsSuspension,
    /// Queries the driver for its stream's device.
    Asks,
    /// In `Turn::admit`, before it reads the turn. `decided`: it has decided the turn once.
    Admit {
        decided: bool,
    },
    /// Waits in `admit` for a change, outside.
    Waits {
        decided: bool,
    },
    /// Waits for the lock, outside.
    Acquires {
        decided: bool,
    },
    /// Has the lock or has given up; before the turn's mutex.
    Acquired {
        decided: bool,
        held: bool,
    },
    /// Ends the turn, in `admit` or after a submission.
    Ends {
        end: End,
        admits: bool,
    },
    /// In the driver with a submission: past its gate, or unmanaged because the process ends.
    Submits {
        managed: bool,
    },
    /// Returned from the driver with a counted submission, before it reads the suspension word.
    Counts,
    /// Before an unmanaged submission reads the suspension word.
    Aside,
    /// Waits until calls are resumed.
    WaitsSuspended,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Thread {
    at: At,
    inside: Inside,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Keeper {
    /// Before it applies the settings.
    Follows,
    /// Before `eviction::ask`.
    Asks,
    /// May query the driver; before it reads the turn.
    Looks,
    Ends(End),
    /// At the end of the process.
    Leaves,
    LeavesBy(End),
    Gone,
}

/// The thread that evicts the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Evictor {
    None,
    /// The turns treat the process as evicted.
    Begun,
    /// Driver calls are suspended.
    Closed,
    /// No driver query of the keeper is under way or can start.
    Shuts,
    Ends(End),
    /// The turn is free; checks whether this thread is outside.
    Counts(u8),
    /// A last check, with nothing under way, whether the eviction is cancelled.
    Ready,
    /// The memory is evicted.
    Away,
    /// The memory is restored, or was never evicted.
    Opens,
    /// The process ended while it was evicted.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    phase: Phase,
    gate: bool,
    paused: bool,
    think_again: bool,
    evicted: bool,
    calls: Calls,
    asking: bool,
    leaving: bool,
    wanted: bool,
    /// True if submitted work is not done.
    work: bool,
    owner: Owner,
    /// The lock was forced away while the driver had work of ours.
    was_forced: bool,
    threads: [Thread; 2],
    keeper: Keeper,
    evictor: Evictor,
    /// The operator's setting, and the remaining number of each event.
    pause: bool,
    pauses: u8,
    evictions: u8,
    holds: u8,
    forced: u8,
}

type Steps = Vec<(&'static str, World)>;

impl World {
    pub fn new(build: Build) -> Self {
        let thread = |left| Thread {
            at: At::Home,
            inside: Inside::Outside,
            left,
        };
        Self {
            phase: Phase::Free,
            gate: false,
            paused: false,
            think_again: false,
            evicted: false,
            calls: Calls::Run,
            asking: false,
            leaving: false,
            wanted: false,
            work: false,
            owner: Owner::Nobody,
            was_forced: false,
            threads: build.submissions.map(thread),
            keeper: Keeper::Follows,
            evictor: Evictor::None,
            pause: false,
            pauses: build.pauses,
            evictions: build.evictions,
            holds: build.holds,
            forced: build.forced,
        }
    }

    pub fn check(&self, build: &Build) -> Result<(), String> {
        let in_driver = |thread: &Thread| {
            matches!(thread.at, At::Submits { .. } | At::Asks)
                || matches!(
                    thread.at,
                    At::Ends {
                        end: End::Drain,
                        ..
                    }
                )
        };
        if self.evictor == Evictor::Away {
            if self.threads.iter().any(in_driver) {
                return Err("a thread is in the driver of an evicted process".into());
            }
            let asks = [Keeper::Ends(End::Drain), Keeper::LeavesBy(End::Drain)];
            if asks.contains(&self.keeper) {
                return Err("the keeper is in the driver of an evicted process".into());
            }
            if self.gate || self.phase == Phase::Held || self.work {
                return Err("an evicted process has a turn, or work".into());
            }
        }
        if self.ends().any(|end| end == End::Release) && self.owner != Owner::Us && !self.was_forced
        {
            return Err("a turn is given up that was given up before".into());
        }
        if self.leaving {
            return Ok(());
        }
        let submits = |thread: &Thread| thread.at == At::Submits { managed: true };
        let is_in = self.threads.iter().any(submits) || self.work;
        if is_in && self.owner != Owner::Us && !self.was_forced {
            return Err("a submission is in the driver while the lock is not ours".into());
        }
        if self.gate && self.paused {
            return Err("the gate of a paused process is open".into());
        }
        if self.gate && build.counted {
            return Err("a counted submission passes the gate".into());
        }
        let stoppers = self.ends().filter(|end| *end != End::Stop).count();
        if stoppers > 1 || (stoppers == 1) != (self.phase == Phase::Draining) {
            return Err(format!("{stoppers} end a turn that is {:?}", self.phase));
        }
        let acquires = self
            .threads
            .iter()
            .any(|thread| matches!(thread.at, At::Acquires { .. } | At::Acquired { .. }));
        if acquires != (self.phase == Phase::Acquiring) {
            return Err("nobody waits for the lock, or one that is held".into());
        }
        if self.phase == Phase::Free && self.owner == Owner::Us {
            return Err("the lock is held, and nobody will give it up".into());
        }
        Ok(())
    }

    /// Returns the steps of all threads that end a turn.
    fn ends(&self) -> impl Iterator<Item = End> {
        let threads = self.threads.map(|thread| match thread.at {
            At::Ends { end, .. } => Some(end),
            _ => None,
        });
        let keeper = match self.keeper {
            Keeper::Ends(end) | Keeper::LeavesBy(end) => Some(end),
            _ => None,
        };
        let evictor = match self.evictor {
            Evictor::Ends(end) => Some(end),
            _ => None,
        };
        threads.into_iter().chain([keeper, evictor]).flatten()
    }

    /// Returns true if the threads have made all their submissions.
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.at == At::Done)
    }

    fn is_open(&self, build: &Build) -> bool {
        let inputs = GateInputs {
            is_off: false,
            is_paused: self.paused,
            looks: build.counted,
        };
        phase::opens(self.phase, inputs)
    }

    /// `open_gate`, under the turn's mutex.
    fn open_gate(&mut self, build: &Build) {
        if self.is_open(build) && !self.evicted {
            self.gate = true;
        }
    }

    /// Adds every step that is possible from here.
    pub fn steps(&self, build: &Build, steps: &mut Steps) {
        for index in 0..self.threads.len() {
            self.thread(index, build, steps);
        }
        self.keep(build, steps);
        self.evict(build, steps);
        self.others(build, steps);
    }

    /// Makes a step of the end of a turn. Returns `None` if it must wait, else the next step, or `Ok(false)` after the last.
    fn end(&mut self, end: End, build: &Build) -> Option<Result<End, bool>> {
        match end {
            End::Stop => {
                if !self.phase.stop() {
                    return Some(Err(false));
                }
                self.gate = false;
                Some(Ok(End::Drain))
            }
            End::Drain => {
                let submits = |thread: &Thread| thread.inside == Inside::Submitting;
                let waits = self.threads.iter().any(submits) && build.barrier;
                (!waits && (!self.work || !build.barrier)).then_some(Ok(End::Release))
            }
            End::Release => {
                if self.owner == Owner::Us {
                    self.owner = Owner::Nobody;
                }
                Some(Ok(End::Freed))
            }
            End::Freed => {
                self.phase.end();
                Some(Err(true))
            }
        }
    }

    /// Continues a drained turn: the lock is still ours.
    fn go_on(&mut self, build: &Build) {
        self.phase.go_on();
        self.open_gate(build);
    }

    fn thread(&self, index: usize, build: &Build, steps: &mut Steps) {
        let thread = self.threads[index];
        let mut step = |change: &dyn Fn(&mut World, &mut Thread)| {
            let mut after = *self;
            let mut moved = thread;
            change(&mut after, &mut moved);
            after.threads[index] = moved;
            steps.push((["thread 0", "thread 1"][index], after));
        };
        match thread.at {
            At::Home if thread.left == 0 => step(&|_, thread| thread.at = At::Done),
            At::Home => step(&|_, thread| {
                thread.inside = Inside::Submitting;
                thread.at = At::Gate { fast: true };
            }),
            At::Gate { fast } => step(&|world, thread| {
                thread.at = match (world.gate, fast) {
                    (true, _) => At::Submits { managed: true },
                    (false, true) => {
                        thread.inside = Inside::Outside;
                        At::Decide
                    }
                    (false, false) => {
                        thread.inside = Inside::Elsewhere;
                        At::Admit { decided: false }
                    }
                };
            }),
            At::Decide => step(&|world, thread| {
                thread.at = match () {
                    () if world.evicted => At::WaitsSuspended,
                    () if world.leaving => At::Aside,
                    () => At::ReadsSuspension,
                };
                if thread.at != At::WaitsSuspended {
                    thread.inside = Inside::Elsewhere;
                }
            }),
            At::ReadsSuspension => step(&|world, thread| world.read_suspension(thread, At::Asks)),
            At::Asks => step(&|_, thread| {
                thread.inside = Inside::Submitting;
                thread.at = At::Gate { fast: false };
            }),
            At::Admit { decided } => {
                step(&|world, thread| world.admit(thread, decided, build));
                // Another process may want the lock now: the turn is decided before the next submission.
                let full = build.counted && !decided && !self.is_kept_out();
                if full && self.phase == Phase::Held && self.owner == Owner::Us {
                    step(&|_, thread| {
                        thread.at = At::Ends {
                            end: End::Stop,
                            admits: true,
                        };
                    });
                }
            }
            At::Waits { decided } if !self.keeps_waiting() => step(&|_, thread| {
                thread.inside = Inside::Elsewhere;
                thread.at = At::Admit { decided };
            }),
            At::Acquires { decided } => {
                let ended = |held| {
                    move |world: &mut World, thread: &mut Thread| {
                        if held {
                            world.owner = Owner::Us;
                        }
                        thread.at = At::Acquired { decided, held };
                    }
                };
                if self.owner == Owner::Nobody {
                    step(&ended(true));
                }
                if self.leaving || self.think_again {
                    step(&ended(false));
                }
            }
            At::Acquired { decided, held } => step(&|world, thread| {
                world.phase.acquired(held);
                if held {
                    world.open_gate(build);
                }
                thread.inside = Inside::Elsewhere;
                thread.at = At::Admit { decided };
            }),
            At::Ends { end, admits } => {
                let back = move |thread: &mut Thread| {
                    thread.at = if admits {
                        At::Admit { decided: true }
                    } else {
                        thread.inside = Inside::Outside;
                        At::Home
                    };
                };
                let mut after = *self;
                if let Some(next) = after.end(end, build) {
                    step(&|world, thread| {
                        *world = after;
                        match next {
                            Ok(end) => thread.at = At::Ends { end, admits },
                            Err(_) => back(thread),
                        }
                    });
                    if next == Ok(End::Release) {
                        step(&|world, thread| {
                            world.go_on(build);
                            back(thread);
                        });
                    }
                }
            }
            At::Submits { managed } => step(&|world, thread| {
                world.work |= managed;
                thread.inside = Inside::Outside;
                thread.left -= 1;
                thread.at = At::Home;
                if managed && build.counted {
                    thread.inside = Inside::Elsewhere;
                    thread.at = At::Counts;
                }
            }),
            At::Counts => {
                let ends = At::Ends {
                    end: End::Stop,
                    admits: false,
                };
                step(&|world, thread| {
                    thread.at = ends;
                    if world.calls != Calls::Run {
                        thread.inside = Inside::Outside;
                        thread.at = At::Home;
                    }
                });
                // No other process wants the lock.
                step(&|_, thread| {
                    thread.inside = Inside::Outside;
                    thread.at = At::Home;
                });
            }
            At::Aside => step(&|world, thread| {
                world.read_suspension(thread, At::Submits { managed: false });
            }),
            At::WaitsSuspended => match self.calls {
                Calls::Run => step(&|_, thread| thread.at = At::Decide),
                Calls::Ended => step(&|_, thread| thread.at = At::Done),
                Calls::Suspended if self.wanted => {}
                Calls::Suspended => step(&|world, _| world.wanted = true),
            },
            At::Waits { .. } | At::Done => {}
        }
    }

    /// Reads the suspension word from inside.
    fn read_suspension(&self, thread: &mut Thread, open: At) {
        thread.at = open;
        if self.calls != Calls::Run {
            thread.inside = Inside::Outside;
            thread.at = At::WaitsSuspended;
        }
    }

    /// Returns true if `admit` returns before it reads the phase.
    fn is_kept_out(&self) -> bool {
        self.evicted || self.calls != Calls::Run || self.leaving || self.paused
    }

    /// Returns true if a thread that waits in `admit` would wait again.
    fn keeps_waiting(&self) -> bool {
        let waits = self.paused || matches!(self.phase, Phase::Acquiring | Phase::Draining);
        waits && !self.evicted && self.calls == Calls::Run && !self.leaving
    }

    /// Makes one poll of `Turn::admit`.
    fn admit(&mut self, thread: &mut Thread, decided: bool, build: &Build) {
        if self.evicted || self.calls != Calls::Run {
            thread.inside = Inside::Outside;
            thread.at = At::WaitsSuspended;
        } else if self.leaving {
            thread.inside = Inside::Elsewhere;
            thread.at = At::Aside;
        } else if self.keeps_waiting() {
            thread.inside = Inside::Outside;
            thread.at = At::Waits { decided };
        } else if self.phase == Phase::Free {
            self.phase.begin_to_acquire();
            self.think_again = false;
            thread.inside = Inside::Outside;
            thread.at = At::Acquires { decided };
        } else if self.owner == Owner::Us {
            self.open_gate(build);
            thread.inside = Inside::Submitting;
            thread.at = At::Submits { managed: true };
        } else {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.gate = false;
        self.phase.lose();
    }

    fn keep(&self, build: &Build, steps: &mut Steps) {
        let mut step = |change: &dyn Fn(&mut World)| {
            let mut after = *self;
            change(&mut after);
            steps.push(("keeper", after));
        };
        match self.keeper {
            Keeper::Follows if self.leaving => step(&|world| world.keeper = Keeper::Leaves),
            Keeper::Follows => step(&|world| {
                world.keeper = Keeper::Asks;
                if world.paused != world.pause {
                    world.paused = world.pause;
                    world.think_again = true;
                    world.gate = false;
                    world.open_gate(build);
                }
            }),
            Keeper::Asks => step(&|world| {
                let may_ask = !world.asking && !world.evicted;
                world.asking |= may_ask;
                world.keeper = if may_ask {
                    Keeper::Looks
                } else {
                    Keeper::Follows
                };
            }),
            Keeper::Looks => {
                // As in `Turn::look`: a paused process gives its turn up now, and a lock that was forced away is noticed.
                let ends = self.phase == Phase::Held && (self.paused || self.owner != Owner::Us);
                if !ends {
                    step(&|world| {
                        world.asking = false;
                        world.keeper = Keeper::Follows;
                    });
                }
                if self.phase == Phase::Held {
                    step(&|world| match world.owner {
                        Owner::Us => world.keeper = Keeper::Ends(End::Stop),
                        _ => world.lose(),
                    });
                }
            }
            Keeper::Ends(end) => self.keeper_ends(end, build, steps, false),
            Keeper::Leaves => step(&|world| {
                world.think_again = true;
                world.keeper = Keeper::LeavesBy(End::Stop);
            }),
            Keeper::LeavesBy(end) => self.keeper_ends(end, build, steps, true),
            Keeper::Gone => {}
        }
    }

    fn keeper_ends(&self, end: End, build: &Build, steps: &mut Steps, leaves: bool) {
        let mut after = *self;
        let Some(next) = after.end(end, build) else {
            return;
        };
        let over = |world: &mut World| {
            world.keeper = if leaves {
                Keeper::Gone
            } else {
                Keeper::Follows
            };
            if leaves {
                world.gate = !world.evicted;
            } else {
                world.asking = false;
            }
        };
        match next {
            Ok(end) if leaves => after.keeper = Keeper::LeavesBy(end),
            Ok(end) => after.keeper = Keeper::Ends(end),
            Err(_) => over(&mut after),
        }
        steps.push(("keeper", after));
        if next == Ok(End::Release) && !leaves {
            // `is_done`: only the result was needed.
            let mut after = *self;
            after.go_on(build);
            over(&mut after);
            steps.push(("keeper goes on", after));
        }
    }

    fn evict(&self, build: &Build, steps: &mut Steps) {
        let mut step = |change: &dyn Fn(&mut World)| {
            let mut after = *self;
            change(&mut after);
            steps.push(("evictor", after));
        };
        match self.evictor {
            Evictor::None if self.evictions > 0 && !self.leaving => step(&|world| {
                world.evictions -= 1;
                world.wanted = false;
                world.evicted = true;
                world.evictor = Evictor::Begun;
            }),
            Evictor::None | Evictor::Ended => {}
            Evictor::Begun => step(&|world| {
                world.calls = Calls::Suspended;
                world.evictor = Evictor::Closed;
            }),
            Evictor::Closed if self.asking => {}
            Evictor::Closed => step(&|world| {
                world.asking = true;
                world.evictor = Evictor::Shuts;
            }),
            Evictor::Shuts => {
                step(&|world| {
                    world.gate = false;
                    world.think_again = true;
                    world.evictor = match world.phase {
                        Phase::Free => Evictor::Counts(0),
                        _ => Evictor::Ends(End::Stop),
                    };
                });
                // The drain takes too long, or the eviction is cancelled.
                step(&|world| world.evictor = Evictor::Opens);
            }
            Evictor::Ends(end) => {
                let mut after = *self;
                if let Some(next) = after.end(end, build) {
                    after.evictor = match next {
                        Ok(end) => Evictor::Ends(end),
                        Err(_) => Evictor::Shuts,
                    };
                    steps.push(("evictor", after));
                }
            }
            Evictor::Counts(index) => step(&|world| {
                let outside = world.threads[usize::from(index)].inside == Inside::Outside;
                world.evictor = match (outside, index) {
                    (false, _) => Evictor::Shuts,
                    (true, 0) => Evictor::Counts(1),
                    (true, _) => Evictor::Ready,
                };
            }),
            Evictor::Ready => step(&|world| {
                world.evictor = if world.leaving {
                    Evictor::Opens
                } else {
                    Evictor::Away
                };
            }),
            Evictor::Away if self.leaving => step(&|world| world.evictor = Evictor::Ended),
            Evictor::Away if self.wanted => step(&|world| world.evictor = Evictor::Opens),
            Evictor::Away => {}
            Evictor::Opens => step(&|world| {
                world.evicted = false;
                world.calls = Calls::Run;
                world.asking = false;
                world.evictor = Evictor::None;
            }),
        }
    }

    /// Adds the steps of the device, the operator, another process and the exit.
    fn others(&self, build: &Build, steps: &mut Steps) {
        let mut step = |who: &'static str, change: &dyn Fn(&mut World)| {
            let mut after = *self;
            change(&mut after);
            steps.push((who, after));
        };
        if self.work {
            step("the device is done", &|world| world.work = false);
        }
        if self.pauses > 0 {
            step("the operator", &|world| {
                world.pauses -= 1;
                world.pause = !world.pause;
            });
        }
        if self.owner == Owner::Nobody && self.holds > 0 {
            step("another takes the lock", &|world| {
                world.holds -= 1;
                world.owner = Owner::Other;
            });
        }
        if self.owner == Owner::Other {
            step("the other releases", &|world| world.owner = Owner::Nobody);
        }
        if self.owner == Owner::Us && self.forced > 0 {
            step("the lock is forced away", &|world| {
                world.forced -= 1;
                world.owner = Owner::Other;
                world.was_forced = true;
            });
        }
        if build.exits && !self.leaving {
            step("exit", &|world| {
                world.leaving = true;
                if world.evicted {
                    world.calls = Calls::Ended;
                }
            });
        }
    }
}
