//! The main loop: samples, keys, news and signals come in. At most ten frames a second are drawn, and none without a
//! change.

use std::io;
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use crossterm::event::{Event, KeyEventKind, MouseButton, MouseEventKind};
use ratatui::layout::Rect;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::app::{self, Next};
use super::moments;
use super::operator::{News, Operator, Task};
use super::state::{Grip, Pulled, State};
use super::terminal::{self, Screen, hangup};
use super::theme;
use super::ticks::Ticks;
use super::view::{self, Look};
use crate::rules::runner::Runner;
use crate::screencast::{self, Form};
use gpushare_base::host::pace::{Pace, thread_time};
use gpushare_control::measured::Measurements;
use gpushare_observe::data::log::Showing;
use gpushare_observe::source::Source;
use gpushare_observe::source::replay::Recorder;
use gpushare_observe::source::ring::Ring;
use shm_layout::SegmentDir;

use past::Past;

mod past;

/// Minimum time between two frames.
pub(super) const FRAME: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// The parts that the loop runs on.
pub struct Dashboard {
    /// The source of samples.
    pub source: Box<dyn Source>,
    /// The recorder of `--record`.
    pub recorder: Option<Recorder>,
    /// The ring of the last hour.
    pub ring: Option<Ring>,
    /// The state of the screen.
    pub state: State,
    /// The look of the screen.
    pub look: Look,
    /// Time between two samples.
    pub pace: Duration,
    /// The pace where the user chose none: costly samples and frames come less often.
    pub thrift: Option<Pace>,
    /// The segment directory, for edits.
    pub dir: PathBuf,
    /// The files of the recording that is played; none in the present.
    pub recording: Vec<PathBuf>,
}

/// The reason why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The user quit.
    Quit,
    /// A signal with this number ended it.
    Signal(u8),
}

impl End {
    /// Returns the end for a signal; ^C is a quit by the user.
    pub(super) fn of(signal: u8) -> Self {
        match signal {
            2 => Self::Quit,
            number => Self::Signal(number),
        }
    }
}

/// Signals that end the program. Without a handler they would end it before the terminal is restored.
const DEADLY: [rustix::process::Signal; 8] = {
    use rustix::process::Signal as S;
    [
        S::INT,
        S::TERM,
        S::HUP,
        S::QUIT,
        S::USR1,
        S::USR2,
        S::ALARM,
        S::XCPU,
    ]
};

/// The end after the loss of the terminal, as after a hang-up.
pub(super) const LOST: End = End::Signal(1);

/// The signals that end, stop and continue the program.
pub(super) struct Signals {
    pub(super) deadly: Vec<(u8, Signal)>,
    pub(super) stop: Signal,
    pub(super) go_on: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let of =
            |signal: rustix::process::Signal| self::signal(SignalKind::from_raw(signal.as_raw()));
        use rustix::process::Signal as S;
        let deadly = DEADLY.into_iter().map(|signal| {
            let number = u8::try_from(signal.as_raw()).unwrap_or(0);
            Ok((number, of(signal)?))
        });
        Ok(Self {
            deadly: deadly.collect::<io::Result<_>>()?,
            stop: of(S::TSTP)?,
            go_on: of(S::CONT)?,
        })
    }

    /// Waits for the next deadly signal and returns its number.
    pub(super) async fn deadly(deadly: &mut [(u8, Signal)]) -> u8 {
        std::future::poll_fn(|context| {
            let mut came = deadly.iter_mut().filter_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(*number)
            });
            came.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The running loop: its threads, its screen and its progress.
struct Going {
    operator: Operator,
    runner: Runner,
    screen: Screen,
    ticks: Ticks,
    /// Set at the end of a recording.
    over: bool,
    /// Set if the screen no longer shows the state.
    dirty: bool,
    next_frame: Instant,
    /// The processor time spent up to the last tick.
    spent: Duration,
}

/// The cause of a wake-up of the loop.
enum Woken {
    Tick,
    Terminal(Option<io::Result<Event>>),
    News(Box<News>),
    Stop,
    GoOn,
    End(u8),
    Frame,
}

fn screen() -> Rect {
    let (width, height) = crossterm::terminal::size().unwrap_or_default();
    Rect::new(0, 0, width, height)
}

impl Dashboard {
    /// Runs until the user quits or a signal ends the program. The terminal is restored before this returns.
    pub fn run(self) -> Result<End> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.show())
    }

    async fn show(mut self) -> Result<End> {
        let mut signals = Signals::new()?;
        let (sender, mut news) = mpsc::unbounded_channel();
        let operator = Operator::start(self.dir.clone(), sender.clone());
        let runner = Runner::start(self.dir.clone(), sender.clone());
        // The first sample comes before the terminal is taken, so that an unusable segment is reported in plain text.
        let over = !self.sample()?;
        let mut hangup = hangup::watch()?;
        let Some((screen, mut terminal)) = terminal::take()? else {
            return Ok(LOST);
        };
        let mut going = Going {
            operator,
            runner,
            screen,
            ticks: Ticks::new(self.pace)?,
            over,
            dirty: true,
            next_frame: Instant::now(),
            spent: thread_time(),
        };
        let played = self.state.is_played();
        let began_ns = self.state.live_ns();
        self.state.is_reading = played || self.ring.is_some();
        let mut past = Past::default();
        if !played {
            let measured = Measurements::of(&SegmentDir::at(&self.dir)).read();
            self.state.use_measurements(measured);
        }
        loop {
            if !past.is_read && (played || self.state.is_past()) {
                past.is_read = true;
                self.read_marks(began_ns, sender.clone());
            }
            // A recording is paused while a moment of it is shown.
            let stopped = going.over || played && self.state.is_past();
            let goes_on = !stopped;
            let woken = tokio::select! {
                biased;
                _ = &mut hangup => return Ok(LOST),
                number = Signals::deadly(&mut signals.deadly) => Woken::End(number),
                _ = signals.stop.recv() => Woken::Stop,
                _ = signals.go_on.recv() => Woken::GoOn,
                () = sleep_until(going.next_frame), if going.dirty => Woken::Frame,
                event = terminal.next() => Woken::Terminal(event),
                Some(news) = news.recv() => Woken::News(Box::new(news)),
                came = going.ticks.tick(), if goes_on => came.map(|()| Woken::Tick)?,
            };
            match woken {
                Woken::Frame => {
                    if self.draw(&mut going, &mut past).is_err() {
                        return Ok(LOST);
                    }
                    continue;
                }
                Woken::Tick => {
                    self.tick(&mut going)?;
                    continue;
                }
                Woken::Terminal(None | Some(Err(_))) => return Ok(LOST),
                Woken::Terminal(Some(Ok(event))) => {
                    let next = self.event(event, &going.operator);
                    if matches!(next, Next::Quit) {
                        return Ok(End::Quit);
                    }
                    self.go_on(next, &mut going)?;
                }
                Woken::News(news) => app::news(&mut self.state, *news),
                Woken::Stop => going.screen.suspend()?,
                Woken::GoOn => going.screen.resume()?,
                Woken::End(number) => return Ok(End::of(number)),
            }
            going.dirty = true;
        }
    }

    /// Draws a frame, or puts it off while the terminal does not read.
    fn draw(&mut self, going: &mut Going, past: &mut Past) -> io::Result<()> {
        if going.screen.is_ready() {
            self.load(past);
            let (state, look) = (&self.state, &self.look);
            going.screen.draw(|frame| view::draw(frame, state, look))?;
            going.dirty = false;
        }
        going.next_frame = Instant::now() + FRAME;
        Ok(())
    }

    /// Takes a sample, and does what follows from it.
    fn tick(&mut self, going: &mut Going) -> Result<()> {
        going.over = !self.sample()?;
        if going.over {
            app::over(&mut self.state);
        }
        let thrifty = self.thrift.as_mut().map(|pace| {
            let before = std::mem::replace(&mut going.spent, thread_time());
            pace.after(going.spent - before)
        });
        if let Some(pace) = self.source.pace().or(thrifty) {
            going.ticks.reset_after(pace)?;
        }
        // A moment of the past is not newer at a look, but older by seconds.
        going.dirty |= !self.state.is_past() || going.next_frame.elapsed() >= SECOND;
        for measured in self.state.take_measurements() {
            self.hand_over(&going.operator, Task::Keep(Box::new(measured)));
        }
        self.act_by_rules(going)
    }

    /// Does what a key or the mouse asked for.
    fn go_on(&mut self, next: Next, going: &mut Going) -> Result<()> {
        match next {
            Next::Suspend => going.screen.suspend()?,
            Next::Redraw => going.screen.forget()?,
            Next::Copy(text) => going.screen.copy(&text)?,
            Next::CopyScreen => {
                let size = crossterm::terminal::size()?;
                let frame = screencast::frame(&self.state, &self.look, size);
                going.screen.copy(&screencast::lines(&frame))?;
            }
            Next::PlayFrom(at_ns) => {
                moments::play_from(&mut self.state, &mut *self.source, at_ns)?;
                going.over = self.source.pace().is_none();
                let pace = self.source.pace().unwrap_or(self.pace);
                going.ticks.reset_after(pace)?;
            }
            Next::Export => self.export(&going.operator)?,
            Next::Theme => self.next_theme(),
            Next::Continue | Next::Do(_) | Next::Quit => {}
        }
        Ok(())
    }

    /// Runs the actions that the rules ask for.
    fn act_by_rules(&mut self, going: &mut Going) -> Result<()> {
        let may_edit = !self.state.choices.read_only;
        for action in self.state.take_actions() {
            let signs = going.runner.act(action, &going.operator, may_edit);
            if let Some(said) = &signs.said {
                app::warn(&mut self.state, said);
            }
            // A terminal that does not read gets no bell either.
            if going.screen.is_ready() {
                let notify = signs.notify.as_deref();
                going.screen.call(signs.bell, notify)?;
            }
        }
        Ok(())
    }

    /// Takes the next sample; returns false at the end.
    fn sample(&mut self) -> Result<bool> {
        self.source.reuse(self.state.newest());
        let Some(sample) = self.source.next()? else {
            return Ok(false);
        };
        let recorded = self.recorder.as_mut().map(|recorder| recorder.add(&sample));
        let earlier = self.state.log().newest(Showing::All, None);
        let kept = self.ring.as_mut().map(|ring| ring.add(&sample, earlier));
        self.state.update(sample);
        self.state.span_ns = self.source.span_ns();
        if let Some(Err(why)) = recorded {
            // Watching matters more than recording.
            self.recorder = None;
            app::warn(
                &mut self.state,
                &format!("the recording has ended: {why:#}"),
            );
        }
        if let Some(Err(why)) = kept {
            self.ring = None;
            app::warn(
                &mut self.state,
                &format!("the last hour is no longer recorded: {why}"),
            );
        }
        Ok(true)
    }

    /// Writes the shown moment to files, in the operator's thread because a disk may be slow.
    fn export(&mut self, operator: &Operator) -> Result<()> {
        let size = crossterm::terminal::size()?;
        let at = jiff::Timestamp::from_millisecond(self.state.data().sample.unix_ms)?;
        let zone = self.look.zone.clone();
        let at = at.to_zoned(zone).strftime("%Y%m%d-%H%M%S");
        let mut files = Vec::new();
        // The state before the key was pressed, without the overlay.
        let overlay = self.state.overlay.take();
        for (end, form) in screencast::FORMS {
            let path = PathBuf::from(format!("gpushare-top-{at}.{end}"));
            self.state.choices.keyless = form == Form::Html;
            let moment = screencast::moment(&self.state, &self.look, size, form)?;
            files.push((path, moment));
        }
        (self.state.overlay, self.state.choices.keyless) = (overlay, false);
        self.hand_over(operator, Task::Write(files));
        Ok(())
    }

    fn next_theme(&mut self) {
        self.look.palette = self.look.palette.clone().with_next_theme();
        let next = self.look.palette.theme();
        let text = match next == theme::OWN {
            true => "theme own: the colours of the settings".to_owned(),
            false => format!("theme {next}; theme = \"{next}\" in the settings keeps it"),
        };
        app::tell(&mut self.state, &text);
    }

    fn event(&mut self, event: Event, operator: &Operator) -> Next {
        let next = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => app::key(&mut self.state, key),
            Event::Paste(text) => {
                app::paste(&mut self.state, &text);
                Next::Continue
            }
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => {
                    let hit = view::hit(screen(), &self.state, mouse.column, mouse.row);
                    let grip = self.grip(mouse.column, mouse.row);
                    self.state.choices.grip = grip;
                    match (hit, grip) {
                        (_, Some(Grip::Lanes | Grip::Strip)) => {
                            let pulled = self.pulled(mouse.column);
                            app::pull(&mut self.state, pulled);
                            Next::Continue
                        }
                        (_, Some(_)) | (None, None) => Next::Continue,
                        (Some(hit), None) => app::click(&mut self.state, hit),
                    }
                }
                MouseEventKind::Drag(MouseButton::Left) => match self.pulled(mouse.column) {
                    None => return Next::Continue,
                    pulled => {
                        app::pull(&mut self.state, pulled);
                        Next::Continue
                    }
                },
                MouseEventKind::Up(MouseButton::Left) => {
                    let pulled = self.pulled(mouse.column);
                    app::let_go(&mut self.state, pulled)
                }
                MouseEventKind::ScrollDown | MouseEventKind::ScrollUp => {
                    let down = mouse.kind == MouseEventKind::ScrollDown;
                    let grip = self.grip(mouse.column, mouse.row);
                    app::scroll(&mut self.state, if down { 1 } else { -1 }, grip)
                }
                _ => return Next::Continue,
            },
            Event::Resize(..) => Next::Continue,
            _ => return Next::Continue,
        };
        match next {
            Next::Do(task) => {
                self.hand_over(operator, task);
                Next::Continue
            }
            other => other,
        }
    }

    /// Returns what the mouse takes hold of at a position.
    fn grip(&self, x: u16, y: u16) -> Option<Grip> {
        let grip = || view::grip(screen(), &self.state, x, y);
        self.state.overlay.is_none().then(grip)?
    }

    /// Returns the value at which the mouse would release what it holds in this column.
    fn pulled(&self, column: u16) -> Option<Pulled> {
        let grip = self.state.choices.grip?;
        view::pulled(screen(), &self.state, grip, column)
    }

    fn hand_over(&mut self, operator: &Operator, task: Task) {
        if let Err(why) = operator.send(task) {
            app::news(&mut self.state, News::Refused(why));
        }
    }
}
