//! The terminal, taken over and always restored: at the end, on a panic, on a signal, on a stop.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste};
use crossterm::style::{Print, force_color_output};
use crossterm::terminal::{
    BeginSynchronizedUpdate, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rustix::termios::tcgetwinsize;

use gpushare_base::text::base64::base64;
use gpushare_base::text::plain::plain;

mod changes;
pub mod hangup;
mod input;
mod out;

pub use input::Input;
use out::{Drain, Out};

/// Maximum time to wait until the terminal has read the restoring sequences. A terminal that does not read must not
/// block the program.
const PATIENCE: Duration = Duration::from_millis(500);

/// Mouse reports: buttons, the wheel, and movements while a button is held, in the encoding without a size limit. Other
/// movements are not reported, because they would wake the program all the time.
const MOUSE_ON: &str = "\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l";

/// Set while the terminal is taken. It is a static because a process has one terminal and the panic hook must find it.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while the dashboard uses it. Dropping it restores the terminal.
pub struct Screen {
    terminal: CrosstermBackend<Out>,
    /// The frame that the terminal shows, at its last known size.
    shown: Buffer,
    /// The memory of the next frame.
    next: Buffer,
    drain: Drain,
}

/// Takes the terminal over and starts to read from it; `None` if the terminal has gone.
pub fn take() -> io::Result<Option<(Screen, Input)>> {
    let screen = match Screen::take() {
        Ok(screen) => screen,
        Err(_) if hangup::has_gone() => return Ok(None),
        Err(error) => return Err(error),
    };
    // With nothing to read from, the stream would panic.
    if event::poll(Duration::ZERO).is_err() {
        return Ok(None);
    }
    Ok(Some((screen, Input::start())))
}

impl Screen {
    /// Takes the terminal over.
    pub fn take() -> io::Result<Self> {
        // The palette decides about colours; crossterm's own reading of NO_COLOR would drop bold as well.
        force_color_output(true);
        restore_on_panic();
        enter(&mut io::stdout())?;
        let (out, drain) = Out::new()?;
        let blank = Buffer::empty(area()?);
        Ok(Self {
            terminal: CrosstermBackend::new(out),
            shown: blank.clone(),
            next: blank,
            drain,
        })
    }

    /// Reports whether the terminal has taken the last frame. Until then another frame is useless.
    pub fn is_ready(&self) -> bool {
        self.drain.is_ready()
    }

    /// Draws one frame and flushes it.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        queue!(self.terminal, BeginSynchronizedUpdate)?;
        self.drain.hold(true);
        let fits = match area()? == self.shown.area {
            true => Ok(()),
            false => self.forget(),
        };
        self.next.reset();
        draw(&mut self.next);
        let changes = changes::changes(&self.shown, &self.next);
        let drawn = fits.and_then(|()| self.terminal.draw(changes.into_iter()));
        std::mem::swap(&mut self.shown, &mut self.next);
        self.drain.hold(false);
        execute!(self.terminal, EndSynchronizedUpdate)?;
        drawn
    }

    /// Clears the screen, so that the next frame draws all of it.
    pub fn forget(&mut self) -> io::Result<()> {
        self.shown = Buffer::empty(area()?);
        self.next.resize(self.shown.area);
        self.terminal.clear()
    }

    /// Copies a text to the terminal's clipboard (OSC 52); a terminal without OSC 52 ignores it.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.terminal;
        write!(out, "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
        Write::flush(out)
    }

    /// Rings the bell, and sends a desktop notification in the form that this terminal supports; other terminals ignore
    /// it.
    pub fn call(&mut self, bell: bool, notify: Option<&str>) -> io::Result<()> {
        let out = &mut self.terminal;
        if bell {
            out.write_all(b"\x07")?;
        }
        if let Some(text) = notify {
            let said = notification(text, &|name| std::env::var(name).unwrap_or_default());
            out.write_all(said.as_bytes())?;
        }
        match bell || notify.is_some() {
            true => Write::flush(out),
            false => Ok(()),
        }
    }

    /// Restores the terminal, stops this process as the shell's ^Z would, and takes the terminal again when the process
    /// continues.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.restore();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.resume()
    }

    /// Takes the terminal again after a stop.
    pub fn resume(&mut self) -> io::Result<()> {
        enter(&mut self.terminal)?;
        self.forget()
    }

    fn restore(&mut self) {
        if TAKEN.swap(false, Ordering::Relaxed) {
            let _ = leave(&mut self.terminal);
            self.drain.settle(PATIENCE);
            let _ = disable_raw_mode();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Returns the escape sequence of a notification: OSC 777 where the terminal supports it, else OSC 9; through tmux to
/// the outer terminal. Escapes in the text would end the sequence early.
fn notification(text: &str, environment: &dyn Fn(&str) -> String) -> String {
    let text: String = plain(text).chars().take(400).collect();
    let term = environment("TERM");
    let knows_777 = ["rxvt", "foot"].iter().any(|name| term.starts_with(name));
    let asked = match knows_777 || !environment("VTE_VERSION").is_empty() {
        true => format!("\x1b]777;notify;gpushare;{text}\x07"),
        false => format!("\x1b]9;gpushare: {text}\x07"),
    };
    match environment("TMUX").is_empty() {
        true => asked,
        false => format!("\x1bPtmux;{}\x1b\\", asked.replace('\x1b', "\x1b\x1b")),
    }
}

/// Returns the whole terminal at its present size.
fn area() -> io::Result<Rect> {
    let size = tcgetwinsize(io::stdout())?;
    Ok(Rect::new(0, 0, size.ws_col, size.ws_row))
}

fn enter(out: &mut impl Write) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::Relaxed);
    execute!(
        out,
        EnterAlternateScreen,
        DisableLineWrap,
        Hide,
        EnableBracketedPaste,
        Print(MOUSE_ON)
    )
}

fn leave(out: &mut impl Write) -> io::Result<()> {
    execute!(
        out,
        EndSynchronizedUpdate,
        Print(MOUSE_OFF),
        DisableBracketedPaste,
        EnableLineWrap,
        LeaveAlternateScreen,
        Show
    )
}

/// Restores the terminal if it is taken. Errors are ignored, because a terminal that is gone cannot show them.
pub fn restore() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        let _ = leave(&mut io::stdout());
        let _ = disable_raw_mode();
    }
}

/// Restores the terminal before a panic's message is printed.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_asked_for_as_the_terminal_knows_it() {
        let under = |name: &'static str, value: &'static str| {
            notification("A waits\x1b]0;x\x07", &|asked: &str| match asked == name {
                true => value.to_owned(),
                false => String::new(),
            })
        };
        let text = "A waits\\u{1b}]0;x\\u{7}";
        assert_eq!(
            under("TERM", "xterm"),
            format!("\x1b]9;gpushare: {text}\x07")
        );
        assert_eq!(
            under("TERM", "foot"),
            format!("\x1b]777;notify;gpushare;{text}\x07")
        );
        assert_eq!(
            under("VTE_VERSION", "7600"),
            format!("\x1b]777;notify;gpushare;{text}\x07")
        );
        let through = under("TMUX", "/tmp/tmux,1");
        assert_eq!(
            through,
            format!("\x1bPtmux;\x1b\x1b]9;gpushare: {text}\x07\x1b\\")
        );
    }
}
