//! Calls whose second step writes in a transaction, killed at each point.

use idem_tests::seeded::Seeded;

use crate::fleet::{Fleet, Said};
use crate::stories::{Fault, Plan, Story, tell};

const POINTS: [&str; 6] = ["before", "opened", "part", "effect", "written", "recorded"];

/// Kills processes one by one, because their transactions may lock others out. Another one continues, and the row is
/// that of the process that has booked.
pub(crate) fn kill(fleet: &mut Fleet, seeded: &mut Seeded) {
    for (number, place) in POINTS.into_iter().enumerate() {
        let plan = Plan::at(&[&format!("book/{place}")]);
        let mut story = [Story::new(number.to_string(), plan)];
        tell(fleet, &mut story, &[Fault::Kill], seeded);
        let key = number.to_string();
        let results = fleet.said.iter().filter(|(_, of, _)| *of == key);
        let booked = results.filter_map(|(_, _, said)| match said {
            Said::Kept(step, value) if step == "book" => i64::try_from(*value).ok(),
            _ => None,
        });
        let booked: Vec<_> = booked.collect();
        assert_eq!(booked.len(), 1, "{place}: it has booked as {booked:?}");
        assert_eq!(fleet.site.rows(number), booked, "{place}");
    }
}
