//! How was the next window forecast? The lines of a decision that say whose forecast it is, and how good it has been lately.

use super::html::{known, number, table};
use crate::planner::plan::{Plan, Prediction};
use crate::planner::predict::traffic::Outlook;
use crate::planner::predict::{Fallback, Forecast, Method};

/// What is to be said; `None` where the next window is taken to be as the last one.
fn shown(plan: &Plan) -> Option<(&Outlook, &Prediction)> {
    let outlook = plan.outlook.as_ref().filter(|outlook| outlook.requests.method != Method::Constant || plan.predictor_errors.len() > 1)?;
    Some((outlook, plan.prediction.as_ref()?))
}

/// Whose forecast it is, and why it is the last value where it is.
fn by(forecast: &Forecast) -> String {
    let name = forecast.method.name();
    forecast.fallback.map_or_else(|| name.to_owned(), |why| format!("the last value instead of {name}'s: {}", meaning(why)))
}

fn meaning(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::NoTraffic => "nothing came so far",
        Fallback::FewPoints => "too few windows so far",
        Fallback::NoFit => "no model fits",
        Fallback::BelowZero => "it expects nothing, and requests come",
        Fallback::Idle => "traffic has ended",
    }
}

/// The forecast as a table.
pub(super) fn html(plan: &Plan) -> String {
    let Some((outlook, next)) = shown(plan) else { return String::new() };
    let row = |what: &str, by: String, value: String| vec![what.to_owned(), by, value];
    let mut rows = vec![
        row("requests in an interval", by(&outlook.requests), number(outlook.requests.value)),
        row("prompt length, tokens", by(&outlook.input_tokens), number(outlook.input_tokens.value)),
        row("generated length, tokens", by(&outlook.output_tokens), number(outlook.output_tokens.value)),
        row("requests a second that are planned for", "over the interval; with silent targets".to_owned(), rates(next)),
    ];
    for method in Method::ALL.iter().filter(|method| plan.predictor_errors.contains_key(method)) {
        let error = plan.predictor_errors.get(method).map(|error| number(error.get()));
        rows.push(row(&format!("recent error of {}", method.name()), "mean distance over what came".to_owned(), known(error)));
    }
    format!("<h4>Forecast of the next window</h4>\n{}", table(&["quantity", "by", "value"], &rows))
}

fn rates(next: &Prediction) -> String {
    format!("{}; {}", number(next.requests_per_second.get()), number(next.estimated_requests_per_second.get()))
}

/// The same as a line.
pub(super) fn text(plan: &Plan) -> String {
    let Some((outlook, next)) = shown(plan) else { return String::new() };
    format!(
        "  next window       {} requests, {} and {} tokens, by {}: {} requests/s\n",
        number(outlook.requests.value),
        number(outlook.input_tokens.value),
        number(outlook.output_tokens.value),
        by(&outlook.requests),
        rates(next),
    )
}
