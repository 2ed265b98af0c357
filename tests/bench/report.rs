//! Figures as a table while they come, and as JSON at the end.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// All figures of a run.
pub(crate) struct Report {
    section: String,
    figures: Map<String, Value>,
}

impl Report {
    pub(crate) fn new() -> Self {
        println!("{} processors, {}", processors(), kernel());
        Report {
            section: String::new(),
            figures: Map::new(),
        }
    }

    pub(crate) fn section(&mut self, name: &str) {
        println!("\n{name}");
        name.clone_into(&mut self.section);
    }

    /// One figure, with what it is compared to and the target of that ratio.
    pub(crate) fn figure(
        &mut self,
        name: &str,
        value: f64,
        unit: &str,
        beside: Option<(&str, f64)>,
        target: &str,
    ) {
        let ratio = beside
            .map(|(other, figure)| format!("  {:.2}x {other} ({})", value / figure, short(figure)))
            .unwrap_or_default();
        let target = if target.is_empty() {
            String::new()
        } else {
            format!("  [target {target}]")
        };
        println!("  {name:<52} {:>10} {unit:<8}{ratio}{target}", short(value));
        let mut entry = json!({"value": value, "unit": unit, "target": target.trim()});
        if let Some((other, figure)) = beside {
            entry["beside"] = json!(other);
            entry["besideValue"] = json!(figure);
            entry["ratio"] = json!(value / figure);
        }
        self.figures
            .insert(format!("{}.{name}", self.section), entry);
    }

    /// Median and 99th percentile of durations, in milliseconds.
    pub(crate) fn latencies(
        &mut self,
        name: &str,
        samples: &mut [Duration],
        target_p50: &str,
        target_p99: &str,
    ) {
        samples.sort_unstable();
        self.figure(
            &format!("{name}, p50"),
            millis(percentile(samples, 50)),
            "ms",
            None,
            target_p50,
        );
        self.figure(
            &format!("{name}, p99"),
            millis(percentile(samples, 99)),
            "ms",
            None,
            target_p99,
        );
    }

    pub(crate) fn finish(self) {
        println!("\n{}", Value::Object(self.figures));
    }
}

pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn short(value: f64) -> String {
    if value >= 1000.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
        |_| "unknown kernel".into(),
        |text| format!("Linux {}", text.trim()),
    )
}
