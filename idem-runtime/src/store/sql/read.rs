//! Reading a record: alone, or with others who wait.

use std::time::Duration;

use tokio::sync::oneshot::{Receiver, error::RecvError};
use tokio::time::timeout;

use super::backend::{Argument, Sealed};
use super::crowd::{Told, Turn, Way};
use super::lane::Lane;
use super::row::{Place, Row};
use super::seats::Rank;
use super::statement::Statements;
use crate::store::{StoreError, StoreErrorKind};

/// How long somebody waits until another takes him along, and then as long for what he is told. Longer than
/// a statement takes, where nothing is wrong.
const PATIENCE: Duration = Duration::from_millis(250);

impl<B: Sealed> Lane<B> {
    /// What stands at a place. Whoever asks while this waits may get the answer of one statement with it,
    /// which began after all of them had asked.
    pub(crate) async fn read(
        &self,
        purpose: (&'static str, Rank<'_>),
        statements: &Statements,
        place: &Place,
    ) -> Result<Option<Row>, StoreError> {
        let turn = match self.crowd.enter(place) {
            Way::Now(turn) => Some(turn),
            Way::Later(told, number) => match self.hear_of(told, number).await {
                Some(Ok(Told::Row(row))) => return Ok(row),
                Some(Ok(Told::Turn(turn))) => Some(turn),
                // Whoever had the turn has given up, or has failed, which each is to see for itself.
                Some(Err(_)) => None,
                None => Some(self.crowd.overtake()),
            },
        };
        let _turn = match turn {
            Some(turn) if !turn.is_for_one() => {
                // Few do this, and what it takes would lie in the future of each.
                match Box::pin(self.read_for(purpose, statements, place, turn)).await? {
                    Ok(row) => return Ok(row),
                    Err(turn) => Some(turn),
                }
            }
            turn => turn,
        };
        let here = [Argument::Bytes(place)];
        Ok(self.run(purpose, &statements.read, &here).await?.row)
    }

    /// Waits for what another says. `None`: it has taken too long.
    async fn hear_of(
        &self,
        mut told: Receiver<Told>,
        number: u64,
    ) -> Option<Result<Told, RecvError>> {
        let mut taken = false;
        loop {
            match timeout(PATIENCE, &mut told).await {
                Ok(heard) => return Some(heard),
                // That statement has just begun, and another would not be sooner back.
                Err(_) if !taken && self.crowd.has_taken(number) => taken = true,
                Err(_) => return None,
            }
        }
    }

    /// Reads for others as well. Gives the turn back where that statement is refused, or its reply cannot be
    /// read.
    async fn read_for(
        &self,
        purpose: (&'static str, Rank<'_>),
        statements: &Statements,
        place: &Place,
        mut turn: Turn,
    ) -> Result<Result<Option<Row>, Turn>, StoreError> {
        let places = turn.places(place);
        let statement = statements.several(places.len());
        let arguments = [Argument::Places(&places)];
        let mut rows = match self.tell(purpose, statement, &arguments).await {
            Ok(answer) => answer.rows,
            // It may be about what stands at the place of another.
            Err((trouble, error))
                if trouble.is_some() || error.kind() == StoreErrorKind::Protocol =>
            {
                turn.leave();
                return Ok(Err(turn));
            }
            Err((_, error)) => return Err(error),
        };
        turn.weigh(rows.iter().map(|(_, row)| row.weight()).sum());
        rows.sort_unstable_by_key(|(place, _)| *place);
        let find = |place: &Place| {
            let found = rows.binary_search_by_key(place, |(place, _)| *place);
            found.ok().map(|found| rows[found].1.clone())
        };
        turn.tell(find);
        Ok(Ok(find(place)))
    }
}
