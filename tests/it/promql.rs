//! What does a PromQL expression ask for, and which labels has its answer? A reader for the part of PromQL that our files use.
//!
//! It knows less than Prometheus and refuses what it does not know, so that nothing passes unread. What Prometheus knows better (types,
//! durations) is left to promtool; what only we know is checked here: which families exist, which labels they carry and may say.

use std::collections::BTreeSet;

use inference_planner_exporter::export::catalog::{self, Kind, Values};

use crate::shipped;

/// Labels that the Prometheus operator or a scrape configuration adds to every series.
pub const SCRAPE_LABELS: [&str; 7] = ["job", "instance", "namespace", "pod", "service", "endpoint", "container"];

/// An expression and where it stands in its text.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub node: Node,
    /// Its text.
    pub text: String,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum Node {
    /// A number or a string.
    Literal,
    /// A family with its matchers.
    Selector { name: String, matchers: Vec<Matcher> },
    /// A function.
    Call { function: String, arguments: Vec<Expr> },
    /// An aggregation; its grouping as (by, labels).
    Aggregate { operator: String, grouping: Option<(bool, Vec<String>)>, arguments: Vec<Expr> },
    /// A binary operator; its matching as (on, labels).
    Binary { operator: String, matching: Option<(bool, Vec<String>)>, left: Box<Expr>, right: Box<Expr> },
}

/// One condition of a selector.
#[derive(Clone, Debug)]
pub struct Matcher {
    pub label: String,
    pub operator: String,
    pub value: String,
}

impl Expr {
    /// This expression and all below it.
    pub fn all(&self) -> Vec<&Self> {
        let mut found = vec![self];
        match &self.node {
            Node::Literal | Node::Selector { .. } => {}
            Node::Call { arguments, .. } | Node::Aggregate { arguments, .. } => found.extend(arguments.iter().flat_map(Self::all)),
            Node::Binary { left, right, .. } => found.extend([left, right].into_iter().flat_map(|side| side.all())),
        }
        found
    }

    /// The families that it names.
    pub fn families(&self) -> BTreeSet<&str> {
        let name = |expr: &&Self| matches!(expr.node, Node::Selector { .. });
        self.all()
            .into_iter()
            .filter(name)
            .filter_map(|expr| if let Node::Selector { name, .. } = &expr.node { Some(name.as_str()) } else { None })
            .collect()
    }
}

/// Labels of an answer: `None` for a scalar.
pub type Labels = Option<BTreeSet<String>>;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Number,
    Text(String),
    /// A range or subquery in brackets.
    Range,
    Sign(&'static str),
}

const SIGNS: [&str; 19] = ["=~", "!~", "!=", "==", ">=", "<=", "(", ")", "{", "}", ",", "=", ">", "<", "+", "-", "*", "/", "%"];
const AGGREGATIONS: [&str; 10] = ["sum", "min", "max", "avg", "count", "group", "stddev", "topk", "bottomk", "quantile"];
/// Operators from the loosest to the tightest.
const PRECEDENCE: [&[&str]; 5] = [&["or"], &["and", "unless"], &["==", "!=", ">", "<", ">=", "<="], &["+", "-"], &["*", "/", "%"]];
const COUNTER_FUNCTIONS: [&str; 3] = ["rate", "irate", "increase"];
const SERIES_FUNCTIONS: [&str; 13] = [
    "last_over_time",
    "min_over_time",
    "max_over_time",
    "avg_over_time",
    "sum_over_time",
    "count_over_time",
    "changes",
    "resets",
    "delta",
    "abs",
    "ceil",
    "clamp_min",
    "clamp_max",
];

/// Reads an expression.
pub fn parse(text: &str) -> Result<Expr, String> {
    let mut reader = Reader { text, tokens: tokens(text)?, next: 0 };
    let expr = reader.binary(0)?;
    if reader.next < reader.tokens.len() { Err(reader.unexpected("the end")) } else { Ok(expr) }
}

fn tokens(text: &str) -> Result<Vec<(Token, usize, usize)>, String> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let run = |accept: fn(u8) -> bool| bytes[start..].iter().take_while(|&&byte| accept(byte)).count();
        let token = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'"' => {
                let (value, length) = string(&text[at..])?;
                at += length;
                Token::Text(value)
            }
            b'[' => {
                at += text[at..].find(']').ok_or("a range without its end")? + 1;
                Token::Range
            }
            byte if byte.is_ascii_digit() => {
                at += run(|byte| byte.is_ascii_digit() || byte == b'.');
                Token::Number
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                at += run(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
                Token::Name(text[start..at].to_owned())
            }
            _ => {
                let sign =
                    SIGNS.into_iter().find(|sign| text[at..].starts_with(sign)).ok_or_else(|| format!("cannot read {:?}", &text[at..]))?;
                at += sign.len();
                Token::Sign(sign)
            }
        };
        found.push((token, start, at));
    }
    Ok(found)
}

/// The value of the string at the start of `text`, and the bytes that it takes.
fn string(text: &str) -> Result<(String, usize), String> {
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, at + 1)),
            '\\' => value.push(characters.next().ok_or("a string without its end")?.1),
            other => value.push(other),
        }
    }
    Err("a string without its end".to_owned())
}

struct Reader<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize, usize)>,
    next: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|token| &token.0)
    }

    fn unexpected(&self, wanted: &str) -> String {
        let rest = self.tokens.get(self.next).map_or("the end", |token| &self.text[token.1..]);
        format!("expected {wanted}, found {rest:?}")
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(found);
        found
    }

    fn takes_word(&mut self, words: &[&str]) -> Option<String> {
        let Some(Token::Name(name)) = self.peek() else { return None };
        let name = Some(name.clone()).filter(|name| words.contains(&name.as_str()))?;
        self.next += 1;
        Some(name)
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    fn name(&mut self) -> Result<String, String> {
        let Some(Token::Name(name)) = self.peek() else { return Err(self.unexpected("a name")) };
        let name = name.clone();
        self.next += 1;
        Ok(name)
    }

    fn expr(&self, node: Node, first: usize) -> Expr {
        let (start, end) = (self.tokens[first].1, self.tokens[self.next - 1].2);
        Expr { node, text: self.text[start..end].to_owned() }
    }

    fn binary(&mut self, level: usize) -> Result<Expr, String> {
        let Some(operators) = PRECEDENCE.get(level) else { return self.primary() };
        let first = self.next;
        let mut left = self.binary(level + 1)?;
        loop {
            let operator = match self.peek() {
                Some(Token::Sign(sign)) if operators.contains(sign) => (*sign).to_owned(),
                Some(Token::Name(name)) if operators.contains(&name.as_str()) => name.clone(),
                _ => return Ok(left),
            };
            self.next += 1;
            // `bool` and the grouping modifiers change no label that we check, and none is used: they would be read as a family.
            let matching = match self.takes_word(&["on", "ignoring"]) {
                Some(word) => Some((word == "on", self.names()?)),
                None => None,
            };
            let right = self.binary(level + 1)?;
            left = self.expr(Node::Binary { operator, matching, left: Box::new(left), right: Box::new(right) }, first);
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let first = self.next;
        match self.peek() {
            Some(Token::Number | Token::Text(_)) => {
                self.next += 1;
                Ok(self.expr(Node::Literal, first))
            }
            Some(Token::Sign("(")) => {
                self.next += 1;
                let inner = self.binary(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(Token::Name(name)) if AGGREGATIONS.contains(&name.as_str()) => self.aggregate(),
            Some(Token::Name(_)) => {
                let name = self.name()?;
                if self.peek() == Some(&Token::Sign("(")) {
                    let arguments = self.arguments()?;
                    return Ok(self.expr(Node::Call { function: name, arguments }, first));
                }
                let matchers = self.matchers()?;
                self.next += usize::from(self.peek() == Some(&Token::Range));
                Ok(self.expr(Node::Selector { name, matchers }, first))
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn aggregate(&mut self) -> Result<Expr, String> {
        let first = self.next;
        let operator = self.name()?;
        let mut grouping = self.grouping()?;
        let arguments = self.arguments()?;
        if grouping.is_none() {
            grouping = self.grouping()?;
        }
        Ok(self.expr(Node::Aggregate { operator, grouping, arguments }, first))
    }

    fn grouping(&mut self) -> Result<Option<(bool, Vec<String>)>, String> {
        match self.takes_word(&["by", "without"]) {
            Some(word) => Ok(Some((word == "by", self.names()?))),
            None => Ok(None),
        }
    }

    fn names(&mut self) -> Result<Vec<String>, String> {
        self.expect("(")?;
        let mut names = Vec::new();
        while !self.takes(")") {
            names.push(self.name()?);
            self.takes(",");
        }
        Ok(names)
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, String> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.takes(")") {
            arguments.push(self.binary(0)?);
            self.takes(",");
        }
        Ok(arguments)
    }

    fn matchers(&mut self) -> Result<Vec<Matcher>, String> {
        let mut matchers = Vec::new();
        if !self.takes("{") {
            return Ok(matchers);
        }
        while !self.takes("}") {
            let label = self.name()?;
            let operator = ["=~", "!~", "!=", "="].into_iter().find(|sign| self.takes(sign)).ok_or_else(|| self.unexpected("a matcher"))?;
            let Some(Token::Text(value)) = self.peek() else { return Err(self.unexpected("a string")) };
            let value = value.clone();
            self.next += 1;
            self.takes(",");
            matchers.push(Matcher { label, operator: operator.to_owned(), value });
        }
        Ok(matchers)
    }
}

/// The labels of the answer, or what in the expression does not fit the catalogue.
pub fn labels(expr: &Expr) -> Result<Labels, String> {
    let blame = |message: String| format!("{message}, in {}", expr.text);
    match &expr.node {
        Node::Literal => Ok(None),
        Node::Selector { name, matchers } => family_labels(name, matchers).map(Some).map_err(blame),
        Node::Call { function, arguments } => call_labels(function, arguments).map_err(blame),
        Node::Aggregate { grouping, arguments, operator } => {
            let vector = arguments.last().ok_or_else(|| blame("no argument".to_owned()))?;
            let all = labels(vector)?.ok_or_else(|| blame("aggregates a scalar".to_owned()))?;
            match grouping {
                // These pick series and leave their labels.
                None if ["topk", "bottomk"].contains(&operator.as_str()) => Ok(Some(all)),
                None => Ok(Some(BTreeSet::new())),
                Some((by, names)) => {
                    known(names, &all).map_err(blame)?;
                    Ok(Some(all.into_iter().filter(|label| names.contains(label) == *by).collect()))
                }
            }
        }
        Node::Binary { operator, matching, left, right } => {
            joined(operator, matching.as_ref(), labels(left)?, labels(right)?).map_err(blame)
        }
    }
}

/// All that is wrong with the text of an expression; empty if nothing is.
pub fn problems(text: &str) -> Vec<String> {
    match parse(text).and_then(|expr| labels(&expr)) {
        Ok(_) => Vec::new(),
        Err(problem) => vec![problem],
    }
}

fn known(names: &[String], labels: &BTreeSet<String>) -> Result<(), String> {
    match names.iter().find(|name| !labels.contains(*name)) {
        Some(name) => Err(format!("no label {name} on either side or below, only {labels:?}")),
        None => Ok(()),
    }
}

fn family_labels(name: &str, matchers: &[Matcher]) -> Result<BTreeSet<String>, String> {
    if let Some(recorded) = shipped::recorded().get(name) {
        let all = parse(recorded).and_then(|expr| labels(&expr))?.unwrap_or_default();
        return matchers.iter().try_for_each(|matcher| known(std::slice::from_ref(&matcher.label), &all)).map(|()| all);
    }
    // Prometheus makes this one itself.
    let own = if name == "up" { Vec::new() } else { catalog::labels(name).ok_or_else(|| format!("no family {name}"))? };
    let all: BTreeSet<String> = own.into_iter().chain(SCRAPE_LABELS).map(str::to_owned).collect();
    for matcher in matchers {
        known(std::slice::from_ref(&matcher.label), &all)?;
        closed_values(name, matcher)?;
    }
    Ok(all)
}

/// A value that no series can have selects nothing, or everything, without an error.
pub fn closed_values(family: &str, matcher: &Matcher) -> Result<(), String> {
    let Some(family) = catalog::by_name(family) else { return Ok(()) };
    let Some(label) = family.labels.iter().find(|label| label.name == matcher.label) else { return Ok(()) };
    let Values::Closed(members) = label.values else { return Ok(()) };
    let alternatives: Vec<&str> = if matcher.operator.contains('~') { matcher.value.split('|').collect() } else { vec![&matcher.value] };
    // Variables of a dashboard take values that exist.
    match alternatives.into_iter().find(|value| !value.contains('$') && !members().iter().any(|member| member.0 == *value)) {
        Some(value) => Err(format!("{} is never {value:?}", matcher.label)),
        None => Ok(()),
    }
}

fn call_labels(function: &str, arguments: &[Expr]) -> Result<Labels, String> {
    match (function, arguments) {
        ("time", []) => Ok(None),
        ("vector", [_]) => Ok(Some(BTreeSet::new())),
        // Only labels that are matched with `=` survive.
        ("absent", [argument]) => {
            labels(argument)?;
            let Node::Selector { matchers, .. } = &argument.node else { return Ok(Some(BTreeSet::new())) };
            Ok(Some(matchers.iter().filter(|matcher| matcher.operator == "=").map(|matcher| matcher.label.clone()).collect()))
        }
        (function, [argument, ..]) if COUNTER_FUNCTIONS.contains(&function) => {
            let gauge =
                argument.families().into_iter().find(|name| catalog::by_name(name).is_some_and(|family| family.kind != Kind::Counter));
            if let Some(name) = gauge { Err(format!("{function} of {name}, which is no counter")) } else { labels(argument) }
        }
        (function, [argument, ..]) if SERIES_FUNCTIONS.contains(&function) => labels(argument),
        _ => Err(format!("{function} is not known here")),
    }
}

/// Two vectors meet where all their labels agree: they have the same ones, or the expression names those that count.
fn joined(operator: &str, matching: Option<&(bool, Vec<String>)>, left: Labels, right: Labels) -> Result<Labels, String> {
    let (Some(left), Some(right)) = (left.clone(), right.clone()) else { return Ok(left.or(right)) };
    match matching {
        Some((on, names)) => {
            let either = left.union(&right).cloned().collect();
            for side in if *on { [&left, &right] } else { [&either, &either] } {
                known(names, side)?;
            }
            let rest = |labels: &BTreeSet<String>| labels.iter().filter(|label| !names.contains(label)).cloned().collect::<BTreeSet<_>>();
            if !on && rest(&left) != rest(&right) {
                return Err(format!("the sides of {operator} differ in more than {names:?}: {left:?}, {right:?}"));
            }
        }
        // A union without `on` joins nothing: both sides are kept.
        None if operator == "or" => {}
        None if left != right => {
            return Err(format!("the sides of {operator} do not share labels, and there is no on(): {left:?}, {right:?}"));
        }
        None => {}
    }
    let keeps_left = ["and", "unless"].contains(&operator) || matching.is_none();
    match matching {
        _ if operator == "or" => Ok(Some(left.intersection(&right).cloned().collect())),
        Some((true, names)) if !keeps_left => Ok(Some(names.iter().cloned().collect())),
        Some((false, names)) if !keeps_left => Ok(Some(left.into_iter().filter(|label| !names.contains(label)).collect())),
        _ => Ok(Some(left)),
    }
}

#[test]
fn mistakes_in_expressions_are_found() {
    let good = [
        "max by (pool) (inference_planner_recommended_replicas{pool=~\"a|b\"}) > on (pool) max by (pool, state) (inference_planner_current_replicas)",
        "sum without (state) (inference_planner_pool_targets) / sum without (state) (inference_planner_pool_targets)",
        "inference_planner_planned_replicas == inference_planner_unbounded_replicas",
        "inference_planner_planned_replicas - ignoring (state) inference_planner_current_replicas{state=\"ready\"}",
        "time() - max(inference_planner_recommendation_timestamp_seconds) > 2 * 3 + 60",
        "increase(inference_planner_decisions_total{outcome!=\"held\"}[5m]) or vector(0)",
    ];
    for text in good {
        assert_eq!(problems(text), Vec::<String>::new(), "{text}");
    }
    for (text, wanted) in [
        ("inference_planner_recommended_replica", "no family"),
        ("inference_planner_recommended_replicas{pol=\"a\"}", "no label pol"),
        ("max by (reason) (inference_planner_recommended_replicas)", "no label reason"),
        ("inference_planner_hold_reason{reason=~\"frozen|pined\"}", "never \"pined\""),
        ("inference_planner_hold_reason{reason!=\"non\"}", "never \"non\""),
        ("inference_planner_recommended_replicas > inference_planner_current_replicas", "do not share labels"),
        ("inference_planner_recommended_replicas > ignoring (role) inference_planner_current_replicas", "differ in more"),
        ("inference_planner_latency_ratio * on (pool) inference_planner_recommended_replicas", "no label pool"),
        ("max by (pool) (inference_planner_planned_replicas) == max by (model) (inference_planner_planned_replicas)", "do not share"),
        ("rate(inference_planner_planned_replicas[5m])", "no counter"),
        ("label_replace(up, \"a\", \"b\")", "not known"),
        ("max by (pool) (inference_planner_planned_replicas", "expected"),
        ("up up", "expected the end"),
        ("up * on (job) group_left () up", "expected"),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|problem| problem.contains(wanted)), "{text}: {found:?}");
    }
}
