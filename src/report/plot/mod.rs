//! How do series, over time or over another axis, become a picture? Inline SVG that needs nothing else: no script, no font, no resource.
//!
//! A drawing stretches with its page while its text keeps its size: curves live in a nested picture that is stretched, and everything else is
//! placed by shares of the width. Colours come from the one stylesheet, [`STYLE`], so that light and dark need no second drawing; curves
//! differ by width and dashes, marks by shape, so that nobody needs the colours.

mod axis;
mod reduce;

use std::fmt::Write;

pub use axis::{Axis, Tick, clock, latency, time_of_day};
pub use reduce::means;

use super::html::{Escaped, brief};
use crate::units::{Ratio, Seconds, Tokens};

/// The stylesheet of every page: colours as custom properties, for light and for dark.
pub const STYLE: &str = include_str!("../style.css");

/// Shows the moment under the pointer in all plots of a page, to relate what happened at the same time. Pages work without it.
pub const CURSOR: &str = include_str!("../cursor.js");

/// Units of the stretched picture.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// Pixels for the marks above the curves.
const MARKS: f64 = 16.0;
/// Share of the width up to which a label of the time axis stands below its line, and what a character of the last one needs on a phone.
const LAST: f64 = 0.96;
const CHARACTER: f64 = 0.0325;
/// Pixels below the curves for the labels of the time axis.
const LABELS: f64 = 18.0;

/// What the horizontal axis may count.
pub trait Across: Copy {
    /// In the unit of the axis.
    fn place(self) -> f64;
}

impl Across for Seconds {
    fn place(self) -> f64 {
        self.get()
    }
}

impl Across for Tokens {
    fn place(self) -> f64 {
        self.get()
    }
}

impl Across for Ratio {
    fn place(self) -> f64 {
        self.get()
    }
}

/// A value at a moment, or at another place of the horizontal axis, in the unit of its axis. `None` where it is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<At = Seconds> {
    /// On the horizontal axis.
    pub at: At,
    /// On the vertical axis.
    pub value: Option<f64>,
}

/// How the points of a curve are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// From point to point.
    Line,
    /// Each value holds until the next point.
    Steps,
}

/// How a curve looks. Each differs from the others in more than its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Wide and light, to lie under another curve.
    Wide,
    /// Hair-thin and light: noise behind its mean.
    Light,
    /// Thin and strong.
    Thin,
    /// Thin and dashed.
    Dashed,
    /// Grey and dotted: for comparison.
    Muted,
}

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Light => "light",
            Self::Thin => "thin",
            Self::Dashed => "dashed",
            Self::Muted => "muted",
        }
    }
}

/// A series.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve<At = Seconds> {
    /// In the legend.
    pub name: String,
    /// How it looks.
    pub ink: Ink,
    /// How its points are joined.
    pub shape: Shape,
    /// From left to right.
    pub points: Vec<Point<At>>,
}

/// A value that should not be exceeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// In the unit of the vertical axis.
    pub value: f64,
    /// Beside the line.
    pub label: String,
}

/// Shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// More.
    Up,
    /// Less.
    Down,
    /// Confirmed.
    Ring,
    /// Held on purpose.
    Square,
    /// Held for want of data.
    Diamond,
}

impl Sign {
    fn path(self) -> &'static str {
        match self {
            Self::Up => "M0-5 5 4H-5z",
            Self::Down => "M0 5 5-4H-5z",
            Self::Ring => "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
            Self::Square => "M-3.5-3.5h7v7h-7z",
            Self::Diamond => "M0-5 5 0 0 5-5 0z",
        }
    }
}

/// Colour of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Calm,
    /// Waiting.
    Wait,
    /// Something is wrong.
    Alarm,
    /// Decided by a person.
    Fixed,
}

impl Tone {
    /// The class of the stylesheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Wait => "wait",
            Self::Alarm => "alarm",
            Self::Fixed => "fixed",
        }
    }
}

/// A moment at which something happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// On the axis of time.
    pub at: Seconds,
    /// Its shape.
    pub sign: Sign,
    /// Its colour.
    pub tone: Tone,
    /// Shown when it is pointed at.
    pub text: String,
}

/// A span of time in which something was so, shown as a strip below the curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// On the axis of time.
    pub from: Seconds,
    /// On the axis of time.
    pub until: Seconds,
    /// Its colour.
    pub tone: Tone,
    /// Shown when it is pointed at.
    pub text: String,
}

/// Height of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// To be read.
    Full,
    /// To be compared at a glance.
    Small,
}

/// A picture to be drawn. Curves lie over each other in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot<'a, At = Seconds> {
    /// What is shown, with the unit.
    pub title: String,
    /// How high it is.
    pub size: Size,
    /// From left to right: time, in most plots.
    pub time: &'a Axis,
    /// From the bottom to the top.
    pub values: &'a Axis,
    /// The series.
    pub curves: Vec<Curve<At>>,
    /// The objective.
    pub limit: Option<Limit>,
    /// What happened until then is shown in the shade. `None` shades nothing.
    pub shade: Option<Seconds>,
    /// Above the curves. `None` leaves no room for them.
    pub marks: Option<Vec<Mark>>,
    /// Below the curves, in order of time.
    pub bands: Vec<Band>,
}

impl<At: Across> Plot<'_, At> {
    /// A figure with its caption and legend.
    pub fn svg(&self) -> String {
        let mut html = String::from("<figure>\n");
        let _ = write!(html, "<figcaption><b>{}</b>", Escaped(&self.title));
        // The title says what a single curve is; small plots share a legend.
        for curve in self.curves.iter().filter(|_| self.curves.len() > 1 && self.size == Size::Full) {
            let _ = write!(html, " {}", key(curve.ink, &curve.name));
        }
        html.push_str("</figcaption>\n");
        let (top, area) = (self.top(), self.area());
        let _ = writeln!(
            html,
            "<svg class=\"plot\" role=\"img\" aria-label=\"{}\" height=\"{}\">",
            Escaped(self.in_words()),
            top + area + LABELS
        );
        self.frame(&mut html);
        let _ = writeln!(
            html,
            "<svg y=\"{top}\" width=\"100%\" height=\"{area}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" class=\"curves\">"
        );
        for curve in &self.curves {
            let path = self.path(curve);
            if !path.is_empty() {
                let _ = writeln!(html, "<path class=\"{}\" d=\"{path}\"/>", curve.ink.class());
            }
        }
        html.push_str("</svg>\n");
        self.draw_limit(&mut html);
        self.draw_bands(&mut html);
        let _ = writeln!(html, "<rect class=\"cursor\" y=\"{top}\" width=\"1\" height=\"{area}\"/>");
        self.draw_marks(&mut html);
        html.push_str("</svg>\n</figure>\n");
        html
    }

    /// For those who cannot see it: where each curve ends, and between which values it lies.
    fn in_words(&self) -> String {
        let mut words = self.title.clone();
        for curve in &self.curves {
            let known = || curve.points.iter().filter_map(|point| point.value).filter(|value| value.is_finite());
            let (low, high) = known().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
            let _ = match known().next_back() {
                Some(last) => write!(words, "; {}: {} to {}, last {}", curve.name, brief(low), brief(high), brief(last)),
                None => write!(words, "; {}: not known", curve.name),
            };
        }
        words
    }

    fn top(&self) -> f64 {
        if self.marks.is_some() { MARKS } else { 6.0 }
    }

    fn area(&self) -> f64 {
        match self.size {
            Size::Full => 130.0,
            Size::Small => 64.0,
        }
    }

    /// Pixels from the upper edge.
    fn height_of(&self, value: f64) -> Option<f64> {
        Some(self.top() + self.area() * (1.0 - self.values.place(value)?))
    }

    fn frame(&self, html: &mut String) {
        let bottom = self.top() + self.area();
        if let Some(width) = self.shade.and_then(|until| self.time.place(until.get())) {
            let (width, top, height) = (coordinate(100.0 * width), self.top(), self.area());
            let _ = writeln!(html, "<rect class=\"shade\" y=\"{top}\" width=\"{width}%\" height=\"{height}\"/>");
        }
        for tick in self.values.ticks() {
            let Some(y) = self.height_of(tick.value) else { continue };
            let (y, label) = (coordinate(y), Escaped(&tick.label));
            let _ = writeln!(
                html,
                "<line class=\"grid\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/><text x=\"-6\" y=\"{y}\" dy=\".35em\" class=\"left\">{label}</text>"
            );
        }
        let mut before = None;
        for tick in self.time.ticks() {
            let Some(x) = self.time.place(tick.value) else { continue };
            let (at, top, below) = (coordinate(100.0 * x), self.top(), bottom + 15.0);
            let _ = writeln!(html, "<line class=\"grid\" x1=\"{at}%\" x2=\"{at}%\" y1=\"{top}\" y2=\"{bottom}\"/>");
            let needed = CHARACTER * tick.label.chars().count() as f64;
            let room = before.replace(x).is_none_or(|before| x - before > needed);
            // Below its line the last label would reach beyond the picture, and beside it into the label before on a phone.
            let place = if x <= LAST { Some("class=\"below\"") } else { room.then_some("class=\"left\" dx=\"10\"") };
            if let Some(place) = place {
                let _ = writeln!(html, "<text x=\"{at}%\" y=\"{below}\" {place}>{}</text>", Escaped(&tick.label));
            }
        }
    }

    fn draw_limit(&self, html: &mut String) {
        let Some((limit, y)) = self.limit.as_ref().and_then(|limit| Some((limit, self.height_of(limit.value)?))) else { return };
        let (top, above) = (self.top(), coordinate(y - self.top()));
        // Where there is no room above the line, its label goes below.
        let baseline = coordinate(if y - self.top() < 14.0 { y + 12.0 } else { y - 4.0 });
        let y = coordinate(y);
        let _ = writeln!(
            html,
            "<rect class=\"over\" y=\"{top}\" width=\"100%\" height=\"{above}\"/><line class=\"limit\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\
             <text class=\"limit left\" x=\"100%\" dx=\"-4\" y=\"{baseline}\">{}</text>",
            Escaped(&limit.label)
        );
    }

    fn draw_bands(&self, html: &mut String) {
        let y = self.top() + self.area() + 1.0;
        for (from, until, band) in reduce::bands(&self.bands, |at| self.time.place(at.get())) {
            let _ = writeln!(
                html,
                "<rect class=\"{}\" x=\"{}%\" y=\"{y}\" width=\"{}%\" height=\"4\"><title>{}</title></rect>",
                band.tone.class(),
                coordinate(100.0 * from),
                coordinate((100.0 * (until - from)).max(0.3)),
                Escaped(&band.text)
            );
        }
    }

    fn draw_marks(&self, html: &mut String) {
        let Some(marks) = &self.marks else { return };
        for (x, mark) in reduce::marks(marks, |at| self.time.place(at.get())) {
            let _ = writeln!(
                html,
                "<svg x=\"{}%\" y=\"7\" class=\"mark {}\"><path d=\"{}\"><title>{}</title></path></svg>",
                coordinate(100.0 * x),
                mark.tone.class(),
                mark.sign.path(),
                Escaped(&mark.text)
            );
        }
    }

    fn path(&self, curve: &Curve<At>) -> String {
        let place = |point: &Point<At>| Some((self.time.place(point.at.place())?, point.value.and_then(|value| self.values.place(value))));
        let places = curve.points.iter().filter_map(place);
        let (x, y) = (|share: f64| coordinate(WIDTH * share), |share: f64| coordinate(HEIGHT * (1.0 - share)));
        let mut path = String::new();
        match curve.shape {
            Shape::Line => {
                for piece in reduce::line(places) {
                    for (at, place) in piece.iter().enumerate() {
                        let _ = write!(path, "{}{} {}", if at == 0 { 'M' } else { ' ' }, x(place.0), y(place.1));
                    }
                    // A single point becomes a dot: its line has round ends.
                    path.push_str(if piece.len() == 1 { "h0" } else { "" });
                }
            }
            Shape::Steps => {
                for piece in reduce::steps(places) {
                    for (at, place) in piece.changes.iter().enumerate() {
                        let _ = match at {
                            0 => write!(path, "M{} {}", x(place.0), y(place.1)),
                            _ => write!(path, "H{}V{}", x(place.0), y(place.1)),
                        };
                    }
                    let _ = write!(path, "H{}", x(piece.end));
                }
            }
        }
        path
    }
}

/// A line of a legend: how it looks and what it is.
pub fn key(ink: Ink, name: &str) -> String {
    let class = ink.class();
    format!(
        "<span class=\"key\"><svg class=\"curves\" width=\"24\" height=\"8\"><path class=\"{class}\" d=\"M2 4h20\"/></svg>{}</span>",
        Escaped(name)
    )
}

/// A mark of a legend.
pub fn mark_key(sign: Sign, tone: Tone, name: &str) -> String {
    format!(
        "<span class=\"key\"><svg width=\"14\" height=\"12\" viewBox=\"-7 -6 14 12\" class=\"mark {}\"><path d=\"{}\"/></svg>{}</span>",
        tone.class(),
        sign.path(),
        Escaped(name)
    )
}

/// One decimal: a tenth of a pixel.
fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Replicas;

    fn curve(shape: Shape, values: &[(f64, Option<f64>)]) -> Curve {
        let points = values.iter().map(|&(at, value)| Point { at: Seconds(at), value }).collect();
        Curve { name: "<a>".to_owned(), ink: Ink::Thin, shape, points }
    }

    fn plot<'a>(time: &'a Axis, values: &'a Axis, curves: Vec<Curve>) -> Plot<'a> {
        let limit = Some(Limit { value: 1.0, label: "<limit>".to_owned() });
        let mark = Mark { at: Seconds(5.0), sign: Sign::Up, tone: Tone::Calm, text: "<why>".to_owned() };
        Plot {
            title: "<title>".to_owned(),
            size: Size::Full,
            time,
            values,
            curves,
            limit,
            shade: Some(Seconds(2.0)),
            marks: Some(vec![mark]),
            bands: vec![Band { from: Seconds(1.0), until: Seconds(4.0), tone: Tone::Wait, text: "<held>".to_owned() }],
        }
    }

    /// The numbers in the `d` attributes.
    fn numbers(svg: &str) -> Vec<f64> {
        let paths = svg.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let words = paths.flat_map(|path| path.split(|c: char| c.is_ascii_alphabetic() || c == ' ')).filter(|word| !word.is_empty());
        words.filter_map(|word| word.parse().ok()).collect()
    }

    #[test]
    fn text_from_outside_stays_text() {
        let (time, values) = (Axis::elapsed(Seconds(10.0), 5.0), Axis::counts(Replicas(4)));
        let svg = plot(&time, &values, vec![curve(Shape::Line, &[(0.0, Some(1.0))]), curve(Shape::Steps, &[])]).svg();
        for name in ["title", "a", "limit", "why", "held"] {
            assert!(svg.contains(&format!("&lt;{name}&gt;")), "{svg}");
        }
        assert!(!svg.contains("<a>") && !svg.contains("<limit>") && !svg.contains("<why>"), "{svg}");
    }

    #[test]
    fn nothing_that_is_not_finite_is_drawn() {
        let values =
            [(0.0, Some(f64::NAN)), (1.0, Some(f64::INFINITY)), (2.0, Some(1e300)), (f64::NAN, Some(1.0)), (3.0, Some(-5.0)), (4.0, None)];
        for (time, axis) in [
            (Axis::elapsed(Seconds(0.0), 5.0), Axis::counts(Replicas(0))),
            (Axis::elapsed(Seconds(f64::INFINITY), 5.0), Axis::latencies(std::iter::empty())),
            (Axis::elapsed(Seconds(10.0), 5.0), Axis::latencies([Seconds(0.05)].into_iter())),
        ] {
            let svg = plot(&time, &axis, vec![curve(Shape::Line, &values), curve(Shape::Steps, &values)]).svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(numbers(&svg).len() > 4);
            assert!(numbers(&svg).iter().all(|number| (-10.0..=WIDTH).contains(number)), "{svg}");
        }
    }

    #[test]
    fn a_stair_holds_each_value_until_the_next() {
        let (time, values) = (Axis::elapsed(Seconds(10.0), 5.0), Axis::counts(Replicas(4)));
        let stair = curve(Shape::Steps, &[(0.0, Some(1.0)), (5.0, Some(1.0)), (6.0, Some(4.0)), (10.0, Some(4.0))]);
        assert!(plot(&time, &values, vec![stair]).svg().contains("d=\"M0 75H600V0H1000\""));
    }

    #[test]
    fn the_last_label_stays_inside_the_page_and_off_the_one_before() {
        let values = Axis::counts(Replicas(4));
        let labels = |to: f64| {
            let time = Axis::time_of_day(Seconds(86_400.0), Seconds(86_400.0 + to), 5.0);
            let svg = plot(&time, &values, Vec::new()).svg();
            let labels = svg.split("<text ").filter(|text| text.contains("00:0"));
            labels.filter_map(|text| text.split('>').nth(1)?.split('<').next().map(str::to_owned)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(121.0), "00:00:00 00:00:30 00:01:00 00:01:30", "the fifth would begin where the fourth ends on a phone");
        assert_eq!(labels(91.0), "00:00:00 00:00:30 00:01:00 00:01:30");
        assert!(plot(&Axis::shares(), &values, Vec::new()).svg().contains(">100 %<"), "short ones have room");
    }

    #[test]
    fn the_shade_ends_at_its_moment() {
        let (time, values) = (Axis::elapsed(Seconds(10.0), 5.0), Axis::counts(Replicas(4)));
        assert!(plot(&time, &values, Vec::new()).svg().contains("<rect class=\"shade\" y=\"16\" width=\"20%\""));
    }

    #[test]
    fn a_point_between_unknown_ones_is_a_dot() {
        let (time, values) = (Axis::elapsed(Seconds(10.0), 5.0), Axis::counts(Replicas(4)));
        let line = curve(Shape::Line, &[(1.0, None), (5.0, Some(2.0)), (6.0, None)]);
        assert!(plot(&time, &values, vec![line]).svg().contains("d=\"M500 50h0\""));
    }
}
