//! A warp's place among those that share samples.
use super::*;

/// The place of a warp in its team, and of that in the block.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) team: Team,
    /// Whether the kernel is one for teams, and for teams that share features: constants of it.
    pub(super) of_team: bool,
    pub(super) adds_exponents: bool,
    /// Whether samples are fetched into the cache a round before they are read: where a round takes
    /// so long that this does not hold up its own samples.
    pub(super) fetches_ahead: bool,
    /// Teams of the block, and which one it is.
    pub(super) teams: u32,
    pub(super) number: u32,
    /// Which part of the features it has, and which part of the components.
    pub(super) features: u32,
    pub(super) components: u32,
}

impl Member {
    /// A warp that works alone.
    #[inline(always)]
    pub(super) fn alone(_: Team) -> Self {
        let (teams, number) = (block_dim() / WARP, thread_idx() / WARP);
        Self {
            team: Team::ONE,
            of_team: false,
            adds_exponents: false,
            fetches_ahead: false,
            teams,
            number,
            features: 0,
            components: 0,
        }
    }

    /// One of a team that shares features.
    #[inline(always)]
    pub(super) fn of_features(team: Team) -> Self {
        Self { fetches_ahead: false, ..Self::of(Team { components: 1, ..team }, true) }
    }

    /// One of a team that shares components.
    #[inline(always)]
    pub(super) fn of_components(team: Team) -> Self {
        Self::of(Team { features: 1, ..team }, false)
    }

    /// One of a team that shares both.
    #[inline(always)]
    pub(super) fn of_both(team: Team) -> Self {
        Self::of(team, true)
    }

    #[inline(always)]
    fn of(team: Team, adds_exponents: bool) -> Self {
        // No part is none, which spares the checks of the divisions.
        let team = Team { features: team.features.max(1), components: team.components.max(1) };
        let (warps, warp) = (team.warps().max(1), thread_idx() / WARP);
        let rank = warp % warps;
        Self {
            team,
            of_team: true,
            adds_exponents,
            fetches_ahead: true,
            teams: block_dim() / WARP / warps,
            number: warp / warps,
            features: rank % team.features,
            components: rank / team.features,
        }
    }

    /// The warp of the block that has these parts of this warp's samples.
    #[inline(always)]
    pub(super) fn other(&self, features: u32, components: u32) -> usize {
        (self.number * self.team.warps() + components * self.team.features + features) as usize
    }

    /// The barrier of its team, and how many threads that has.
    #[inline(always)]
    pub(super) fn barrier(&self) -> u32 {
        1 + self.number
    }

    #[inline(always)]
    pub(super) fn threads(&self) -> u32 {
        self.team.warps() * WARP
    }

    /// Whether it is the first of its team.
    #[inline(always)]
    pub(super) fn is_first(&self) -> bool {
        self.features == 0 && self.components == 0
    }
}
