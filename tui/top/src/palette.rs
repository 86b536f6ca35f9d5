//! The palette: colours and glyphs, chosen once at the start for the terminal.
//!
//! Drawing code names a [`Role`] or a process's hue; the palette defines its look. In mono only bold, dim and reverse
//! are used; without UTF-8 only ASCII.

use std::env;

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

use super::theme::{self, Own, Rgb, Theme, nearest};

/// The choice whether to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// If the terminal has them and NO_COLOR is not set.
    #[default]
    Auto,
    /// Whatever the terminal says.
    Always,
    /// Not at all.
    Never,
}

/// The number of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// No colours.
    Mono,
    /// The terminal's own sixteen.
    Ansi16,
    /// The 256 of xterm.
    Ansi256,
    /// 24-bit colours.
    True,
}

/// The purpose of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Plain text.
    Text,
    /// Less important.
    Dim,
    /// A heading.
    Title,
    /// Frames.
    Border,
    /// A key to press.
    Key,
    /// A good state.
    Good,
    /// A warning.
    Warn,
    /// A fault.
    Bad,
    /// The selected line.
    Selected,
}

/// The colours and glyphs of the screen.
#[derive(Clone, Debug)]
pub struct Palette {
    depth: Depth,
    light: bool,
    theme: Option<Theme>,
    /// The colours of the settings.
    own: Option<Theme>,
    /// The glyphs.
    pub glyphs: &'static Glyphs,
}

/// The glyphs of one character set.
#[derive(Debug)]
pub struct Glyphs {
    /// A filled cell.
    pub full: &'static str,
    /// Parts of a cell from the bottom, an eighth each; the last is full.
    pub rising: [&'static str; 8],
    /// Parts of a cell from the left, an eighth each; the last is full.
    pub growing: [&'static str; 8],
    /// A wait.
    pub wait: &'static str,
    /// A wait for memory.
    pub memory: &'static str,
    /// A refused allocation.
    pub denied: &'static str,
    /// An edit.
    pub edit: &'static str,
    /// The holder of the lock.
    pub holder: &'static str,
    /// An empty cell.
    pub empty: &'static str,
    /// The end of a quota.
    pub tick: &'static str,
    /// Sorted, largest first.
    pub down: &'static str,
    /// Sorted, smallest first.
    pub up: &'static str,
    /// A folded group.
    pub folded: &'static str,
    /// A group whose rows are shown.
    pub open: &'static str,
    /// A horizontal line.
    pub line: &'static str,
    /// The mark where text was cut off.
    pub cut: &'static str,
    /// The unit of temperature.
    pub degrees: &'static str,
    /// An arrow from the old to the new value.
    pub arrow: &'static str,
    /// The frame of panes.
    pub frame: border::Set<'static>,
    /// The frame of dialogs.
    pub dialog: border::Set<'static>,
}

static UNICODE: Glyphs = Glyphs {
    full: "█",
    rising: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    growing: ["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"],
    wait: "░",
    memory: "▒",
    denied: "!",
    edit: "◆",
    holder: "►",
    empty: "·",
    tick: "┘",
    down: "▼",
    up: "▲",
    folded: "▸",
    open: "▾",
    line: "─",
    cut: "…",
    degrees: "°C",
    arrow: "→",
    frame: border::PLAIN,
    dialog: border::DOUBLE,
};

const ASCII_FRAME: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

static ASCII: Glyphs = Glyphs {
    full: "#",
    rising: ["_", "_", "-", "-", "=", "=", "#", "#"],
    growing: [" ", " ", " ", "=", "=", "=", "#", "#"],
    wait: ".",
    memory: "m",
    denied: "!",
    edit: "e",
    holder: ">",
    empty: ".",
    tick: "'",
    down: "v",
    up: "^",
    folded: "+",
    open: "-",
    line: "-",
    cut: "~",
    degrees: "C",
    arrow: "->",
    frame: ASCII_FRAME,
    dialog: border::Set {
        horizontal_top: "=",
        horizontal_bottom: "=",
        ..ASCII_FRAME
    },
};

/// Colours of processes that are readable on black: blue, orange, pink, violet, sand, steel, rose, grey. No role has one of
/// them.
const DARK: [Rgb; 8] = [
    (86, 156, 255),
    (255, 158, 74),
    (240, 120, 200),
    (150, 115, 255),
    (190, 150, 105),
    (150, 175, 205),
    (255, 190, 205),
    (170, 170, 170),
];
/// Colours in the same order that are readable on white.
const LIGHT: [Rgb; 8] = [
    (20, 90, 200),
    (200, 95, 0),
    (190, 30, 140),
    (100, 50, 190),
    (115, 75, 35),
    (65, 90, 125),
    (150, 70, 110),
    (95, 95, 95),
];
/// Colours of roles on black: keys, what is well, what to look at, what is wrong.
const DARK_ROLES: [Rgb; 4] = [
    (72, 202, 208),
    (98, 205, 116),
    (228, 200, 72),
    (245, 80, 75),
];
/// Colours of roles on white.
const LIGHT_ROLES: [Rgb; 4] = [(0, 120, 130), (20, 120, 40), (135, 105, 0), (185, 20, 20)];
/// Colours of roles in the terminal's own colours.
const ROLES_16: [Color; 4] = [Color::Cyan, Color::Green, Color::Yellow, Color::Red];

impl Palette {
    /// Returns the number of colours.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// Returns a palette of this depth.
    pub fn new(depth: Depth, light: bool, ascii: bool) -> Self {
        Self {
            depth,
            light,
            theme: None,
            own: None,
            glyphs: if ascii { &ASCII } else { &UNICODE },
        }
    }

    /// Returns the palette for this terminal, from its environment; `light` is the user's setting of the background.
    pub fn of_this_terminal(when: When, ascii: bool, light: Option<bool>) -> Self {
        let word = |name| env::var(name).unwrap_or_default();
        let depth = depth(when, &word("NO_COLOR"), &word("TERM"), &word("COLORTERM"));
        let charset = ["LC_ALL", "LC_CTYPE", "LANG"].map(word);
        let charset = charset.iter().find(|value| !value.is_empty());
        let utf8 = charset.is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        });
        let light = light.unwrap_or_else(|| is_light(&word("COLORFGBG")));
        Self::new(depth, light, ascii || !utf8)
    }

    /// Applies the colours of a theme. A terminal with sixteen colours keeps its own.
    pub fn with_theme(mut self, theme: Option<Theme>) -> Self {
        self.theme = theme;
        self
    }

    /// Applies the colours chosen by the user, which replace those of the theme.
    pub fn with_own(mut self, own: &Own) -> Self {
        if !own.is_empty() {
            let base = self.theme.unwrap_or_else(|| usual(self.light));
            self.own = Some(own.over(base));
            self.theme = self.own;
        }
        self
    }

    /// Applies the colours of the next theme.
    pub fn with_next_theme(self) -> Self {
        let mut all: Vec<Option<Theme>> = theme::names()
            .into_iter()
            .map(|name| theme::find(name).unwrap_or(None))
            .collect();
        all.extend(self.own.map(Some));
        let now = all.iter().position(|one| *one == self.theme);
        let next = all[(now.unwrap_or(0) + 1) % all.len()];
        self.with_theme(next)
    }

    /// Returns the palette for an image on a dark or a light page, which has all colours.
    pub fn for_image(&self, light: bool) -> Self {
        let depth = Depth::True;
        Self {
            depth,
            light,
            ..self.clone()
        }
    }

    /// Returns true if there are colours for dark and for light pages. A theme has one of both.
    pub fn has_two_pages(&self) -> bool {
        self.theme.is_none()
    }

    /// Returns the theme's name.
    pub fn theme(&self) -> &'static str {
        self.theme.map_or(theme::DEFAULT, |theme| theme.name)
    }

    /// Returns the theme, if the palette uses one.
    fn themed(&self) -> Option<&Theme> {
        self.theme
            .as_ref()
            .filter(|theme| theme.mono || self.depth >= Depth::Ansi256)
    }

    fn rgb(&self, colour: Rgb) -> Color {
        match self.depth {
            Depth::True => Color::Rgb(colour.0, colour.1, colour.2),
            _ => Color::Indexed(nearest(colour)),
        }
    }

    /// Returns the style of a role.
    pub fn style(&self, role: Role) -> Style {
        if let Some(theme) = self.themed().filter(|theme| !theme.mono) {
            return self.themed_style(theme, role);
        }
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let (style, colour) = match role {
            Role::Text => (plain, None),
            Role::Dim | Role::Border => (plain.add_modifier(Modifier::DIM), None),
            Role::Title => (bold, None),
            Role::Key => (bold, Some(0)),
            Role::Good => (plain, Some(1)),
            Role::Warn => (bold, Some(2)),
            Role::Bad => (bold, Some(3)),
            Role::Selected => (plain.add_modifier(Modifier::REVERSED), None),
        };
        let roles = if self.light { LIGHT_ROLES } else { DARK_ROLES };
        match (colour, self.depth) {
            (None, _) | (_, Depth::Mono) => style,
            (Some(_), _) if self.themed().is_some() => style,
            (Some(at), Depth::Ansi16) => style.fg(ROLES_16[at]),
            (Some(at), _) => style.fg(self.rgb(roles[at])),
        }
    }

    fn themed_style(&self, theme: &Theme, role: Role) -> Style {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let or_dim = |colour: Option<Rgb>| match colour {
            Some(colour) => plain.fg(self.rgb(colour)),
            None => plain.add_modifier(Modifier::DIM),
        };
        match role {
            Role::Text => theme.text.map_or(plain, |text| plain.fg(self.rgb(text))),
            Role::Dim => or_dim(theme.dim),
            Role::Border => or_dim(theme.border),
            Role::Title => theme.title.map_or(bold, |title| bold.fg(self.rgb(title))),
            Role::Key => bold.fg(self.rgb(theme.key)),
            Role::Good => plain.fg(self.rgb(theme.good)),
            Role::Warn => bold.fg(self.rgb(theme.warn)),
            Role::Bad => bold.fg(self.rgb(theme.bad)),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
        }
    }

    /// Returns the style of a process.
    pub fn process(&self, hue: usize) -> Style {
        match (self.depth, self.themed()) {
            (Depth::Mono, _) => Style::new(),
            (_, Some(theme)) if theme.mono => Style::new(),
            (_, Some(theme)) => Style::new().fg(self.rgb(theme.hues[hue % theme.hues.len()])),
            _ => Style::new().fg(self.hue(hue)),
        }
    }

    /// Returns a style as the strongest mark on the screen.
    pub fn strong(&self, style: Style) -> Style {
        style.add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    /// Returns a style with the background that marks waiting; `None` without colours.
    pub fn waiting(&self, style: Style) -> Option<Style> {
        let mono = self.themed().is_some_and(|theme| theme.mono);
        let tint = match (self.depth, self.light) {
            (Depth::Mono, _) => return None,
            _ if mono => return None,
            (Depth::Ansi16, true) => Color::Gray,
            (Depth::Ansi16, false) => Color::DarkGray,
            (_, true) => self.rgb((208, 208, 208)),
            (_, false) => self.rgb((58, 58, 58)),
        };
        Some(style.bg(tint))
    }

    fn hue(&self, hue: usize) -> Color {
        let colours = if self.light { LIGHT } else { DARK };
        match self.depth {
            Depth::Mono => Color::Reset,
            // Colours of the sixteen that no role has. Many terminals' plain blue is unreadable on black.
            Depth::Ansi16 => {
                let own = match self.light {
                    true => [
                        Color::Blue,
                        Color::Magenta,
                        Color::DarkGray,
                        Color::LightMagenta,
                    ],
                    false => [
                        Color::LightBlue,
                        Color::Magenta,
                        Color::White,
                        Color::LightMagenta,
                    ],
                };
                own[hue % own.len()]
            }
            Depth::Ansi256 | Depth::True => self.rgb(colours[hue % colours.len()]),
        }
    }
}

/// Returns the terminal's own colours as a theme, for colours that are not chosen.
pub(super) fn usual(light: bool) -> Theme {
    let (hues, [key, good, warn, bad]) = match light {
        true => (LIGHT, LIGHT_ROLES),
        false => (DARK, DARK_ROLES),
    };
    Theme {
        name: theme::DEFAULT,
        about: "",
        text: None,
        dim: None,
        border: None,
        title: None,
        key,
        good,
        warn,
        bad,
        hues,
        mono: false,
    }
}

fn depth(when: When, no_color: &str, term: &str, colorterm: &str) -> Depth {
    let found = match () {
        () if colorterm == "truecolor" || colorterm == "24bit" => Depth::True,
        () if term.contains("256color") => Depth::Ansi256,
        // Terminals of the VT series would read a colour's number as blinking and underlining.
        () if term.is_empty() || term == "dumb" || term.starts_with("vt") => Depth::Mono,
        () => Depth::Ansi16,
    };
    match when {
        When::Never => Depth::Mono,
        When::Auto if !no_color.is_empty() => Depth::Mono,
        When::Auto => found,
        When::Always => found.max(Depth::Ansi16),
    }
}

/// Reports whether `COLORFGBG` names a light background. Its form is `foreground;background`; 7 and above 8 are light.
fn is_light(colorfgbg: &str) -> bool {
    let background = colorfgbg
        .rsplit(';')
        .next()
        .and_then(|text| text.parse::<u8>().ok());
    background.is_some_and(|colour| colour == 7 || colour > 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_is_what_the_terminal_says_unless_told_otherwise() {
        assert_eq!(depth(When::Auto, "", "xterm-256color", ""), Depth::Ansi256);
        assert_eq!(depth(When::Auto, "", "xterm", "truecolor"), Depth::True);
        assert_eq!(depth(When::Auto, "1", "xterm", "truecolor"), Depth::Mono);
        assert_eq!(depth(When::Always, "1", "dumb", ""), Depth::Ansi16);
        assert_eq!(depth(When::Never, "", "xterm", "truecolor"), Depth::Mono);
        assert_eq!(depth(When::Auto, "", "dumb", ""), Depth::Mono);
        assert_eq!(depth(When::Auto, "", "vt220", ""), Depth::Mono);
    }

    #[test]
    fn a_light_terminal_is_recognised() {
        assert!(is_light("0;15"));
        assert!(!is_light("15;0"));
        assert!(!is_light(""));
    }

    #[test]
    fn one_comes_back_to_own_colours_through_all_themes() {
        let own: Own = toml::from_str("good = \"#010203\"").unwrap();
        let mut palette = Palette::new(Depth::True, false, false).with_own(&own);
        assert_eq!(palette.style(Role::Good).fg, Some(Color::Rgb(1, 2, 3)));
        assert_eq!(palette.theme(), theme::OWN);
        let mut seen = Vec::new();
        for _ in 0..=theme::names().len() {
            palette = palette.with_next_theme();
            seen.push(palette.theme());
        }
        assert_eq!(seen[..seen.len() - 1], theme::names());
        assert_eq!(seen.last(), Some(&theme::OWN));
    }

    #[test]
    fn mono_has_no_colour_at_all() {
        let palette = Palette::new(Depth::Mono, false, true);
        for role in [Role::Key, Role::Good, Role::Bad, Role::Warn] {
            assert_eq!(palette.style(role).fg, None);
        }
        assert_eq!(palette.process(3).fg, None);
    }
}
