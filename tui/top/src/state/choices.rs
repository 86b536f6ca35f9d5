//! The user's choices of the view. They are stored by identity: a device by its UUID, a process by its slot and epoch.

use std::collections::BTreeSet;

use super::Grip;
use crate::keys::{Keymap, Place};
use gpushare_observe::data::Data;
use gpushare_observe::data::lanes::{BIN_NS, FINE_NS};
use gpushare_observe::data::log::Showing;
use gpushare_observe::filter::Filter;
use gpushare_sample::{Who, columns};
use shm_layout::policy::TurnLimit;

/// The screen that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// Everything about one device.
    #[default]
    Main,
    /// Everything about one process.
    Detail(Who),
    /// Waits and blockers on one device.
    Waits,
    /// The processes of one device by where their memory is.
    Models,
}

impl Screen {
    /// Returns the place of the keys that work on the screen.
    pub fn place(self) -> Place {
        match self {
            Screen::Main => Place::Main,
            Screen::Detail(_) => Place::Detail,
            Screen::Waits => Place::Waits,
            Screen::Models => Place::Models,
        }
    }
}

/// The grouping of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tree {
    /// No grouping.
    #[default]
    Flat,
    /// By user.
    User,
    /// By group.
    Group,
    /// By container, or by job where there is no container.
    Container,
}

impl Tree {
    /// Returns the next grouping.
    pub fn next(self) -> Self {
        match self {
            Tree::Flat => Tree::User,
            Tree::User => Tree::Group,
            Tree::Group => Tree::Container,
            Tree::Container => Tree::Flat,
        }
    }

    /// Returns the name of a row's group.
    pub fn branch(self, row: &columns::Row<'_>) -> String {
        let process = row.process;
        let user = Some(process.user.clone()).filter(|user| !user.is_empty());
        let (word, name) = match self {
            Tree::Flat => return String::new(),
            Tree::User => ("user", user),
            Tree::Group => ("group", process.group.clone()),
            Tree::Container => match process.job().filter(|_| process.container.is_none()) {
                Some(job) => ("job", Some(job)),
                None => ("container", process.container.clone()),
            },
        };
        match name {
            Some(name) => format!("{word} {name}"),
            None => format!("no {word}"),
        }
    }
}

/// The choice of the processes that have a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// All, and those that held or wanted the lock most where not all fit.
    #[default]
    Busy,
    /// The processes in the list below, in its order.
    Listed,
    /// The marked ones.
    Marked,
}

impl Lanes {
    /// Returns the next choice.
    pub fn next(self) -> Self {
        match self {
            Lanes::Busy => Lanes::Listed,
            Lanes::Listed => Lanes::Marked,
            Lanes::Marked => Lanes::Busy,
        }
    }

    /// Returns the words behind the number of lanes in the title.
    pub fn words(self) -> &'static str {
        match self {
            Lanes::Busy => "",
            Lanes::Listed => ", as listed",
            Lanes::Marked => ", marked",
        }
    }
}

/// A short message in the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The message.
    pub text: String,
    /// Set for bad news.
    pub bad: bool,
    /// The time at which the message disappears, by the samples' clock.
    pub until_ns: u64,
}

/// The columns by which rows are sorted, each with whether its largest comes first.
pub type SortBy = ((usize, bool), Option<(usize, bool)>);

/// An order of the rows.
#[derive(Clone, Debug)]
pub struct RowOrder {
    /// The columns that made it.
    pub by: SortBy,
    /// The rows, each a process on a device.
    pub places: Vec<(Who, usize)>,
}

/// Time spans of one lane column, in nanoseconds.
const ZOOMS: [u64; 8] = [
    FINE_NS,
    2 * FINE_NS,
    5 * FINE_NS,
    BIN_NS,
    2 * BIN_NS,
    4 * BIN_NS,
    8 * BIN_NS,
    16 * BIN_NS,
];
/// The narrowest column that is chosen by itself: 25 ms.
const CLOSEST: usize = 2;
/// The default, 250 ms: a quarter of a minute on a usual screen.
const ZOOM: usize = 4;

/// The user's choices.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The screen.
    pub screen: Screen,
    /// Shows the waits of the last seconds, not of all time.
    pub lately: bool,
    /// The screen from which that of one process was opened.
    pub list: Screen,
    /// Position of the shown device.
    pub gpu: usize,
    /// The device requested at the start, until it appears: NVML may be slow to list it.
    pub wanted_gpu: Option<usize>,
    /// The UUID of the shown device, by which it is found again when positions change.
    uuid: Option<String>,
    /// Lists processes of all devices, not only of the shown one.
    pub all_gpus: bool,
    /// The selected process.
    pub selected: Option<Who>,
    /// The columns to show, in this order, as indices into [`columns::COLUMNS`]; `None` for those that fit.
    pub columns: Option<Vec<usize>>,
    /// The column to sort by, an index into [`columns::COLUMNS`].
    pub sort: usize,
    /// Sorts the largest first.
    pub descending: bool,
    /// The column that decides between equal rows, and whether its largest comes first: the previous sort column.
    pub then: Option<(usize, bool)>,
    /// Hidden columns that would fit, as indices into [`columns::COLUMNS`].
    pub hidden: BTreeSet<usize>,
    /// Columns that are shown before all others.
    pub added: BTreeSet<usize>,
    /// The grouping of the rows.
    pub tree: Tree,
    /// The folded groups, by name.
    pub folded: BTreeSet<String>,
    /// The marked processes, on which the next action acts.
    pub marked: BTreeSet<Who>,
    /// The filter of the rows.
    pub filter: Filter,
    /// The choice of events.
    pub events: Showing,
    /// An index into [`ZOOMS`]; `None` until the user zooms.
    zoom: Option<usize>,
    /// The choice of lanes.
    pub lanes: Lanes,
    /// Number of lanes that are scrolled past.
    pub lanes_from: usize,
    /// The order of the rows at the last measurement, so that rows that are nearly equal do not change places.
    pub order: Option<RowOrder>,
    /// The order of the rows while a dialog is open.
    pub pinned: Option<Vec<(Who, usize)>>,
    /// The item that the mouse holds.
    pub grip: Option<Grip>,
    /// Disables all changes.
    pub read_only: bool,
    /// Set if the screen is shown where no key can be pressed, so that no key is named.
    pub keyless: bool,
    /// The keys chosen by the user.
    pub keymap: Keymap,
    /// The message in the last line.
    pub notice: Option<Notice>,
    /// The generation of the edit whose comparison the user has closed.
    pub kept: Option<u64>,
}

impl Default for Choices {
    fn default() -> Self {
        let sort = columns::position("wait").unwrap_or(0);
        Self {
            screen: Screen::Main,
            lately: true,
            list: Screen::Main,
            gpu: 0,
            wanted_gpu: None,
            uuid: None,
            all_gpus: false,
            selected: None,
            columns: None,
            sort,
            descending: true,
            then: None,
            hidden: BTreeSet::new(),
            added: BTreeSet::new(),
            tree: Tree::Flat,
            folded: BTreeSet::new(),
            marked: BTreeSet::new(),
            filter: Filter::default(),
            events: Showing::default(),
            zoom: None,
            lanes: Lanes::default(),
            lanes_from: 0,
            order: None,
            pinned: None,
            grip: None,
            read_only: false,
            keyless: false,
            keymap: Keymap::default(),
            notice: None,
            kept: None,
        }
    }
}

impl Choices {
    /// Adapts the choices to the data: devices may have moved, processes may have gone.
    pub fn settle(&mut self, data: &Data) {
        let devices = &data.sample.devices;
        if let Some(gpu) = self.wanted_gpu.take_if(|gpu| *gpu < devices.len()) {
            self.show_gpu(gpu, data);
        }
        if let Some(uuid) = &self.uuid
            && let Some(at) = devices.iter().position(|d| d.uuid == *uuid)
        {
            self.gpu = at;
        }
        self.gpu = self.gpu.min(devices.len().saturating_sub(1));
        if self.uuid.is_none() && self.wanted_gpu.is_none() {
            self.show_the_busiest(data);
        }
        let gone = |who: Who| data.process(who).is_none();
        self.marked.retain(|who| !gone(*who));
        if self.selected.is_some_and(gone) {
            self.selected = None;
        }
        if let Screen::Detail(who) = self.screen
            && gone(who)
        {
            self.say("that process has ended", false, data.sample.time_ns);
            self.screen = self.behind();
        }
    }

    /// Returns the screen one step back.
    pub fn behind(&self) -> Screen {
        match self.screen {
            Screen::Detail(_) => self.list,
            _ => Screen::Main,
        }
    }

    /// Shows the device at `gpu`, and follows it when its position changes.
    pub fn show_gpu(&mut self, gpu: usize, data: &Data) {
        self.gpu = gpu.min(data.sample.devices.len().saturating_sub(1));
        self.uuid = data.sample.devices.get(self.gpu).map(|d| d.uuid.clone());
    }

    /// Shows the first device on which a process waits, else the first that a process uses, until a device is chosen.
    fn show_the_busiest(&mut self, data: &Data) {
        let sample = &data.sample;
        let used = |gpu: &usize| data.there(*gpu).next().is_some();
        let waited = |gpu: &usize| !sample.devices[*gpu].waiters.is_empty();
        let all = 0..sample.devices.len();
        if let Some(gpu) = all.clone().find(waited).or_else(|| all.clone().find(used)) {
            self.show_gpu(gpu, data);
        }
    }

    /// Shows or hides a column.
    pub fn toggle_column(&mut self, at: usize) {
        if let Some(chosen) = &mut self.columns {
            match chosen.iter().position(|one| *one == at) {
                Some(place) if chosen.len() > 1 => drop(chosen.remove(place)),
                Some(_) => {}
                None => chosen.push(at),
            }
            return;
        }
        let shown = columns::COLUMNS.get(at).is_some_and(|c| c.width > 0);
        let exceptions = if shown {
            &mut self.hidden
        } else {
            &mut self.added
        };
        if !exceptions.remove(&at) {
            exceptions.insert(at);
        }
    }

    /// Reports whether a column is shown, if it fits.
    pub fn shows_column(&self, at: usize) -> bool {
        match &self.columns {
            Some(chosen) => chosen.contains(&at),
            None => {
                let usual = columns::COLUMNS.get(at).is_some_and(|c| c.width > 0);
                self.added.contains(&at) || usual && !self.hidden.contains(&at)
            }
        }
    }

    /// Returns the columns by which the rows are sorted.
    pub fn by(&self) -> SortBy {
        ((self.sort, self.descending), self.then)
    }

    /// Sorts by a column; the previous sort column decides between equal rows. A second call reverses the order.
    pub fn sort_by(&mut self, column: usize) {
        if self.sort == column {
            self.descending = !self.descending;
            return;
        }
        self.then = Some((self.sort, self.descending));
        self.sort = column;
    }

    /// Sorts rows that are equal in the first column by this one. A second call reverses the order, a third ends it.
    pub fn sort_then_by(&mut self, column: usize) {
        self.then = match self.then {
            _ if column == self.sort => return,
            Some((then, true)) if then == column => Some((column, false)),
            Some((then, false)) if then == column => None,
            _ => Some((column, true)),
        };
    }

    /// Shows the next device, or the one before.
    pub fn turn_gpu(&mut self, by: isize, data: &Data) {
        let count = data.sample.devices.len().max(1);
        let next = (self.gpu as isize + by).rem_euclid(count as isize);
        self.show_gpu(next.unsigned_abs(), data);
    }

    /// Shows a message in the last line for a few seconds.
    pub fn say(&mut self, text: impl Into<String>, bad: bool, now_ns: u64) {
        self.notice = Some(Notice {
            text: text.into(),
            bad,
            until_ns: now_ns.saturating_add(6_000_000_000),
        });
    }

    /// Shows more time in a lane, or less.
    pub fn zoom_by(&mut self, from: usize, by: isize) {
        self.zoom = Some(from.saturating_add_signed(by).min(ZOOMS.len() - 1));
    }

    /// Returns the present zoom: the user's, else that of the slice.
    pub fn zoom(&self, data: &Data) -> usize {
        self.zoom.unwrap_or_else(|| self.zoom_of_slice(data))
    }

    /// Returns the time span of one lane column, in nanoseconds.
    pub fn column_ns(&self, data: &Data) -> u64 {
        ZOOMS[self.zoom(data).min(ZOOMS.len() - 1)]
    }

    /// Returns the zoom at which the turns of the shown device can be told apart: a column for a turn, or a few turns for
    /// each where they are very short.
    fn zoom_of_slice(&self, data: &Data) -> usize {
        let device = data.sample.devices.get(self.gpu);
        let limit = device.and_then(|device| device.policy.0.kind.turn_limit());
        let Some(TurnLimit::Time(slice_ns)) = limit else {
            return ZOOM;
        };
        let fits = ZOOMS.iter().rposition(|column_ns| *column_ns <= slice_ns);
        fits.unwrap_or(0).clamp(CLOSEST, ZOOM)
    }
}
