//! Connections that wait until their request is complete and can be answered.
//!
//! One thread reads from all of them and never blocks on one. It reads from at most [`HEARD`] at a time: for a new one, the
//! oldest one with an incomplete request is closed. A complete and permitted request gets one of the places for answers, in
//! the order of arrival. If all places are taken, the connection that has held one longest is closed after [`SLOW`].

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::message::{Answer, Asking, Client, HEAD, Request};
use crate::source::locked;

/// Maximum number of connections that are read from at a time.
const HEARD: usize = 64;
/// Minimum time that each of them gets, however many connect.
const GRACE: Duration = Duration::from_millis(10);
/// Maximum time for a response while others wait for a place.
const SLOW: Duration = Duration::from_secs(1);
/// Pause in accepting when no descriptor is free; some become free as connections end.
const DEAF: Duration = Duration::from_millis(50);

/// The connections that are not answered yet.
pub struct Waiting<'l> {
    listener: &'l TcpListener,
    /// Connections with an incomplete request, the oldest first.
    asking: VecDeque<Asking>,
    /// Connections that wait for a place.
    asked: VecDeque<(Asking, Request)>,
    deaf_until: Option<Instant>,
    places: Arc<Places>,
}

/// The places for connections that are being answered.
struct Places {
    most: usize,
    taken: Mutex<Taken>,
    /// Descriptor that is readable when a place is free again.
    bell: OwnedFd,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Number, start time and connection of each place, the oldest first. The connection is removed once it is ended.
    by: Vec<(u64, Instant, Option<TcpStream>)>,
}

/// A place, which is free again when this is dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.places.taken);
        taken.by.retain(|(number, ..)| *number != self.number);
        let _ = rustix::io::write(&self.places.bell, &1_u64.to_ne_bytes());
    }
}

impl Places {
    /// Takes a place for a client.
    fn take(self: &Arc<Self>, client: &Client, now: Instant) -> Place {
        let mut taken = locked(&self.taken);
        let number = taken.next;
        taken.next += 1;
        taken.by.push((number, now, client.to_end().ok()));
        let places = Arc::clone(self);
        Place { places, number }
    }

    fn has_room(&self) -> bool {
        locked(&self.taken).by.len() < self.most
    }

    /// Ends the connection that has held its place longest, if its time is over. Otherwise returns the end of its time.
    fn end_slow(&self, now: Instant) -> Option<Instant> {
        let mut taken = locked(&self.taken);
        let (_, since, stream) = taken.by.iter_mut().find(|(.., stream)| stream.is_some())?;
        let until = *since + SLOW;
        if until > now {
            return Some(until);
        }
        let _ = stream.take()?.shutdown(Shutdown::Both);
        None
    }
}

impl<'l> Waiting<'l> {
    /// Makes an empty queue for a listener; `places` connections are answered at a time.
    pub fn new(listener: &'l TcpListener, places: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            listener,
            asking: VecDeque::new(),
            asked: VecDeque::new(),
            deaf_until: None,
            places: Arc::new(Places {
                most: places,
                taken: Mutex::default(),
                bell,
            }),
        })
    }

    /// Waits until requests that pass the check can be answered, and returns them with their places.
    pub fn next(
        &mut self,
        check: impl Fn(&Request) -> Result<(), Answer>,
    ) -> Vec<(Client, Request, Place)> {
        loop {
            let now = Instant::now();
            self.hear(now, &check);
            let (given, slow) = self.give_places(now);
            if !given.is_empty() {
                return given;
            }
            self.sleep(now, slow);
            self.take_in(Instant::now());
        }
    }

    /// Reads from all connections and checks the complete requests.
    fn hear(&mut self, now: Instant, check: impl Fn(&Request) -> Result<(), Answer>) {
        for mut client in std::mem::take(&mut self.asking) {
            let heard = client.hear(now).and_then(|request| match request {
                Some(request) => check(&request).map(|()| Some(request)),
                None => Ok(None),
            });
            match heard {
                Ok(None) => self.asking.push_back(client),
                Ok(Some(request)) => self.asked.push_back((client, request)),
                Err(answer) => client.refuse(&answer),
            }
        }
    }

    /// Gives free places to waiting connections. If some still wait, also returns the time at which a place may become
    /// free.
    fn give_places(&mut self, now: Instant) -> (Vec<(Client, Request, Place)>, Option<Instant>) {
        let mut given = Vec::new();
        while self.places.has_room() {
            let Some((client, request)) = self.asked.pop_front() else {
                return (given, None);
            };
            if let Ok(client) = client.heard() {
                let place = self.places.take(&client, now);
                given.push((client, request, place));
            }
        }
        let waits = !self.asked.is_empty();
        (given, waits.then(|| self.places.end_slow(now)).flatten())
    }

    /// Sleeps until data or a connection arrives, or until a timeout ends.
    fn sleep(&self, now: Instant, slow: Option<Instant>) {
        let until = self.asking.iter().map(Asking::until).min();
        let room = self.room_from(now);
        let is_open = room.is_none_or(|from| from <= now);
        let later = room.filter(|_| !is_open && self.asked.len() < HEARD);
        let until = until.into_iter().chain(slow).chain(later).min();
        let left = until.and_then(|until| {
            let left = until.saturating_duration_since(now);
            // Rounded up, because a sleep that ends too early is a loop without work.
            Timespec::try_from(left + Duration::from_millis(1)).ok()
        });
        let bell = PollFd::new(&self.places.bell, PollFlags::IN);
        let listener = is_open.then(|| PollFd::new(self.listener, PollFlags::IN));
        let asking = self.asking.iter();
        let asking = asking.map(|client| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN));
        let mut all: Vec<_> = asking.chain([bell]).chain(listener).collect();
        let _ = poll(&mut all, left.as_ref());
        let _ = rustix::io::read(&self.places.bell, &mut [0; 8]);
    }

    /// Returns the time from which another connection can be accepted, or `None` for now. Connections that wait for a place
    /// are kept.
    fn room_from(&self, now: Instant) -> Option<Instant> {
        if self.deaf_until.is_some() {
            return self.deaf_until;
        }
        if self.asking.len() + self.asked.len() < HEARD {
            return None;
        }
        let oldest = self.asking.front();
        Some(oldest.map_or(now + HEAD, |oldest| oldest.until() - HEAD + GRACE))
    }

    /// Accepts new connections.
    fn take_in(&mut self, now: Instant) {
        self.deaf_until.take_if(|until| *until <= now);
        // Only some at a time, so that the present connections are read in between.
        for _ in 0..HEARD / 4 {
            if self.room_from(now).is_some_and(|from| from > now) {
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.asking.len() + self.asked.len() >= HEARD {
                        self.asking.pop_front();
                    }
                    self.asking.extend(Asking::new(stream, now).ok());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.deaf_until = Some(now + DEAF);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn asks(listener: &TcpListener) -> TcpStream {
        let address = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        stream.write_all(request).expect("room");
        stream
    }

    #[test]
    fn who_keeps_a_place_for_too_long_loses_it_to_one_who_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut waiting = Waiting::new(&listener, 1).expect("room");
        let begun = Instant::now();
        let _slow = asks(&listener);
        let first = waiting.next(|_| Ok(())).pop().expect("one asked");
        let _waits = asks(&listener);
        let holds = std::thread::spawn(move || {
            let (client, _, place) = first;
            // Its connection is ended without an answer.
            let mut stream = client.to_end().expect("open");
            let end = stream.read(&mut [0]);
            drop(place);
            end.map_err(|error| error.kind())
        });
        let second = waiting.next(|_| Ok(()));
        assert_eq!(second.len(), 1);
        assert!(begun.elapsed() >= SLOW);
        assert_eq!(holds.join().expect("no panic"), Ok(0));
    }

    #[test]
    fn who_is_not_admitted_takes_no_place_and_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut waiting = Waiting::new(&listener, 1).expect("room");
        let mut refused = asks(&listener);
        let stop = asks(&listener);
        let seen = std::cell::Cell::new(0);
        let given = waiting.next(|_| {
            seen.set(seen.get() + 1);
            match seen.get() {
                1 => Err(Answer::refused("401 Unauthorized", "no")),
                _ => Ok(()),
            }
        });
        assert_eq!(given.len(), 1);
        let mut answer = String::new();
        refused.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        drop(stop);
    }
}
