//! Themes: colours for roles and for processes, known from other monitors. The background is the terminal's own.

use serde::Deserialize;

/// A colour: red, green, blue.
pub type Rgb = (u8, u8, u8);

/// The colours of a theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// The theme's name in the settings.
    pub name: &'static str,
    /// The description of the theme, for the manual.
    pub about: &'static str,
    /// The colour of text; `None` for the terminal's own.
    pub text: Option<Rgb>,
    /// The colour of less important text; `None` for dim text.
    pub dim: Option<Rgb>,
    /// The colour of frames; `None` for dim text.
    pub border: Option<Rgb>,
    /// The colour of headings; `None` for bold text.
    pub title: Option<Rgb>,
    /// The colour of keys.
    pub key: Rgb,
    /// The colour of a good state.
    pub good: Rgb,
    /// The colour of a warning.
    pub warn: Rgb,
    /// The colour of a fault.
    pub bad: Rgb,
    /// The colours of processes, none of which is that of a role.
    pub hues: [Rgb; 8],
    /// Set for no colours at all.
    pub mono: bool,
}

/// Converts `0xrrggbb`.
const fn rgb(hex: u32) -> Rgb {
    ((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

macro_rules! themes {
    ($($name:literal $about:literal $text:literal $dim:literal $border:literal $title:literal $key:literal $good:literal $warn:literal $bad:literal [$($hue:literal)*];)*) => {
        /// Every theme but the terminal's own colours (`default`) and no colours (`mono`).
        pub static THEMES: &[Theme] = &[$(Theme {
            name: $name,
            about: $about,
            text: Some(rgb($text)),
            dim: Some(rgb($dim)),
            border: Some(rgb($border)),
            title: Some(rgb($title)),
            key: rgb($key),
            good: rgb($good),
            warn: rgb($warn),
            bad: rgb($bad),
            hues: [$(rgb($hue)),*],
            mono: false,
        },)*];
    };
}

themes! {
// name               what it is                                text     dim      border   title    key      good     warn     bad       processes
    "gruvbox"         "gruvbox, dark"                           0xebdbb2 0xa89984 0x665c54 0xfbf1c7 0x8ec07c 0xb8bb26 0xfabd2f 0xfb4934 [0x83a5b4 0xfe8019 0xd3869b 0xd5c4a1 0x5f87b8 0xa65f90 0xd65d0e 0xa89984];
    "gruvbox-light"   "gruvbox, for a light ground"             0x3c3836 0x7c6f64 0xa89984 0x282828 0x427b58 0x79740e 0xb57614 0x9d0006 [0x076678 0xd65d0e 0x8f3f71 0x504945 0x458588 0xb16286 0x7c6f64 0x4b3bab];
    "nord"            "Nord"                                    0xd8dee9 0x8791a5 0x5e6a82 0xeceff4 0x88c0d0 0xa3be8c 0xebcb8b 0xe0717d [0x6f96e8 0xd89060 0xb48ead 0x5e81ac 0xd8dee9 0xb59a7a 0x9a90d0 0xc0b8c8];
    "dracula"         "Dracula"                                 0xf8f8f2 0x8492c4 0x6272a4 0xff79c6 0x8be9fd 0x50fa7b 0xf1fa8c 0xff5555 [0xbd93f9 0xffb86c 0xff79c6 0x94b8ff 0xd0a080 0xf8c8dc 0x8492c4 0xc8c8c8];
    "solarized"       "Solarized, dark"                         0x93a1a1 0x748a91 0x586e75 0xeee8d5 0x2aa198 0x859900 0xc99a00 0xe5534f [0x268bd2 0xcb5b16 0xe0559a 0x8088d6 0x93a1a1 0xb08968 0x6f9fd8 0xd8a0c0];
    "solarized-light" "Solarized, for a light ground"           0x586e75 0x839496 0x93a1a1 0x073642 0x1d8078 0x6b7a00 0x916c00 0xc4231f [0x1f75b3 0xc85a1a 0xb72d71 0x5a60b3 0x586e75 0x7a5c3c 0x8a3fa8 0x3a4f8f];
    "catppuccin"      "Catppuccin Mocha"                        0xcdd6f4 0x9399b2 0x6c7086 0xf5e0dc 0x89dceb 0xa6e3a1 0xf9e2af 0xf38ba8 [0x89b4fa 0xfab387 0xf5c2e7 0xcba6f7 0xcdd6f4 0xc09a80 0x8f8fe0 0x9aa5c0];
    "catppuccin-latte" "Catppuccin Latte, for a light ground"   0x4c4f69 0x7c7f93 0x9ca0b0 0x1e66f5 0x04779f 0x358a24 0xb36f00 0xd20f39 [0x1e66f5 0xe8590c 0xc04f9f 0x8839ef 0x5c5f77 0x7a5c4a 0x7287fd 0x9a3f6f];
    "tokyo-night"     "Tokyo Night"                             0xc0caf5 0x8089b3 0x565f89 0xbb9af7 0x7dcfff 0x9ece6a 0xe0af68 0xf7768e [0x7aa2f7 0xff9e64 0xbb9af7 0xc0caf5 0xe58fd0 0xb08968 0x6f76d8 0x9aa5ce];
    "colour-blind"    "hues that red-green and blue-yellow blind eyes tell apart (Okabe and Ito)"
                                                                0xe8e8e8 0xa0a0a0 0x808080 0xffffff 0x56b4e9 0x56b4e9 0xf0e442 0xe68a00 [0x0072b2 0xcc79a7 0x00b386 0xdddddd 0xe8743b 0x9a8fe8 0xa08060 0x9aa8b8];
    "high-contrast"   "bright on black"                         0xffffff 0xdddddd 0xffffff 0xffffff 0x00ffff 0x00ff00 0xffff00 0xff6060 [0x66b3ff 0xffa040 0xff80ff 0xffffff 0xb090ff 0xd8b080 0xffc0e0 0xb8c8e0];
}

/// The name of the colours chosen by the user.
pub const OWN: &str = "own";

/// Colours chosen by the user, which replace those of a theme.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Own {
    text: Option<Hex>,
    dim: Option<Hex>,
    border: Option<Hex>,
    title: Option<Hex>,
    key: Option<Hex>,
    good: Option<Hex>,
    warn: Option<Hex>,
    bad: Option<Hex>,
    processes: Vec<Hex>,
}

/// The keys below `[colors]`, each with an example. A test compares it with [`Own`].
pub const OWN_SETTINGS: [(&str, &str, &str); 9] = [
    ("text", "\"#e0e0e0\"", "text"),
    ("dim", "\"#909090\"", "what matters less"),
    ("border", "\"#606060\"", "frames"),
    ("title", "\"#ffffff\"", "headings"),
    ("key", "\"#48cad0\"", "keys"),
    ("good", "\"#62cd74\"", "what is well"),
    ("warn", "\"#e4c848\"", "what to look at"),
    ("bad", "\"#f56964\"", "what is wrong"),
    (
        "processes",
        "[\"#569cff\", \"#ff9e4a\"]",
        "processes, one to eight colours in turn",
    ),
];

/// A colour as it is written, `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Hex(Rgb);

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let hex = text.strip_prefix('#').filter(|hex| hex.len() == 6);
        let hex = hex.filter(|hex| hex.chars().all(|digit| digit.is_ascii_hexdigit()));
        let number = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let number =
            number.ok_or_else(|| format!("\"{text}\" is no colour; write it as \"#ff8000\""))?;
        Ok(Self(rgb(number)))
    }
}

impl Own {
    /// Reports whether no colour was chosen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a theme of these colours; colours that were not chosen come from `base`.
    pub fn over(&self, base: Theme) -> Theme {
        let or = |own: Option<Hex>, base: Rgb| own.map_or(base, |hex| hex.0);
        let some = |own: Option<Hex>, base: Option<Rgb>| own.map(|hex| hex.0).or(base);
        let hue = |at: usize| match self.processes.len() {
            0 => base.hues[at],
            count => self.processes[at % count].0,
        };
        Theme {
            name: OWN,
            about: "the colours of the settings",
            text: some(self.text, base.text),
            dim: some(self.dim, base.dim),
            border: some(self.border, base.border),
            title: some(self.title, base.title),
            key: or(self.key, base.key),
            good: or(self.good, base.good),
            warn: or(self.warn, base.warn),
            bad: or(self.bad, base.bad),
            hues: std::array::from_fn(hue),
            mono: false,
        }
    }
}

/// The name of the terminal's own colours.
pub const DEFAULT: &str = "default";
/// The name of the theme without colours.
pub const MONO: &str = "mono";

/// Returns every name.
pub fn names() -> Vec<&'static str> {
    let named = THEMES.iter().map(|theme| theme.name);
    [DEFAULT].into_iter().chain(named).chain([MONO]).collect()
}

/// Finds the theme of this name; `None` for the terminal's own colours.
pub fn find(name: &str) -> Result<Option<Theme>, String> {
    // The American spelling is accepted too.
    let name = match name {
        "color-blind" => "colour-blind",
        name => name,
    };
    match name {
        DEFAULT => Ok(None),
        MONO => Ok(Some(Theme {
            name: MONO,
            about: "no colours",
            mono: true,
            ..THEMES[0]
        })),
        name => match THEMES.iter().find(|theme| theme.name == name) {
            Some(theme) => Ok(Some(*theme)),
            None => Err(format!(
                "there is no theme \"{name}\"; there are {}",
                names().join(", ")
            )),
        },
    }
}

/// Returns the nearest of the 256 colours of xterm.
pub fn nearest((red, green, blue): Rgb) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let level = |value: u8| {
        (0..6_u8)
            .min_by_key(|at| LEVELS[usize::from(*at)].abs_diff(value))
            .unwrap_or(0)
    };
    let far = |one: Rgb| distance(one, (red, green, blue));
    let [r, g, b] = [red, green, blue].map(level);
    let cube = (
        16 + 36 * r + 6 * g + b,
        far((
            LEVELS[usize::from(r)],
            LEVELS[usize::from(g)],
            LEVELS[usize::from(b)],
        )),
    );
    let greys = (0..24_u8).map(|step| {
        (
            232 + step,
            far((8 + 10 * step, 8 + 10 * step, 8 + 10 * step)),
        )
    });
    let best = greys.chain([cube]).min_by_key(|(_, far)| *far);
    best.map_or(cube.0, |(index, _)| index)
}

/// Returns the square of the distance between two colours.
fn distance(one: Rgb, other: Rgb) -> u32 {
    let part = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
    part(one.0, other.0) + part(one.1, other.1) + part(one.2, other.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_theme_is_found_by_its_name_and_no_other_is() {
        for name in names() {
            assert!(find(name).is_ok(), "{name}");
        }
        let error = find("monokai").unwrap_err();
        assert!(error.contains("there are default, gruvbox,"), "{error}");
    }

    #[test]
    fn what_is_well_and_what_is_wrong_look_different_in_every_theme() {
        for theme in THEMES {
            let all = [theme.good, theme.warn, theme.bad];
            assert!(
                all[0] != all[1] && all[1] != all[2] && all[0] != all[2],
                "{}",
                theme.name
            );
        }
    }

    #[test]
    fn a_process_looks_like_no_other_process_and_like_no_role() {
        let usual = [false, true].map(crate::palette::usual);
        for theme in THEMES.iter().chain(&usual) {
            let roles = [theme.key, theme.good, theme.warn, theme.bad];
            for (at, hue) in theme.hues.iter().enumerate() {
                let far = |other: &Rgb| distance(*hue, *other);
                let name = theme.name;
                let same = theme.hues[..at].iter().map(far).min();
                assert!(same.is_none_or(|far| far > 25 * 25), "{name} {hue:x?}");
                let same = roles.iter().map(far).min();
                assert!(same > Some(35 * 35), "{name} {hue:x?} looks like a role");
                assert!(
                    roles.iter().all(|role| nearest(*role) != nearest(*hue)),
                    "{name} {hue:x?}"
                );
            }
        }
    }

    #[test]
    fn own_colours_take_the_place_of_those_of_a_theme() {
        let own = |text: &str| toml::from_str::<Own>(text).map_err(|error| error.to_string());
        let nord = find("nord").unwrap().unwrap();
        let mine = own("bad = \"#ff0001\"\nprocesses = [\"#010203\", \"#040506\"]").unwrap();
        let mine = mine.over(nord);
        assert_eq!((mine.bad, mine.good), ((255, 0, 1), nord.good));
        assert_eq!((mine.hues[2], mine.hues[7]), ((1, 2, 3), (4, 5, 6)));
        assert!(own("").unwrap().is_empty());
        for wrong in ["bad = \"red\"", "bad = \"#ff00\"", "bad = \"#ff00zz\""] {
            assert!(own(wrong).unwrap_err().contains("is no colour"), "{wrong}");
        }
        let error = own("nonsense = 1").unwrap_err();
        for (name, example, _) in OWN_SETTINGS {
            assert!(error.contains(&format!("`{name}`")), "{error}");
            own(&format!("{name} = {example}")).unwrap();
        }
    }

    #[test]
    fn a_colour_has_a_near_one_among_256() {
        assert_eq!(nearest((255, 255, 255)), 231);
        assert_eq!(nearest((0x5f, 0xaf, 0xff)), 75);
        assert_eq!(nearest((0x80, 0x80, 0x80)), 244);
    }
}
