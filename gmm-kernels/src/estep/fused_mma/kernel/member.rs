use super::*;

/// The place of a warp in its team, and of the team in the block.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) team: Team,
    /// Whether the kernel is for teams, and for teams that share features: constants of a kernel.
    pub(super) of_team: bool,
    pub(super) adds_exponents: bool,
    /// Whether samples are fetched into the cache a round ahead: for rounds so long that this does not delay their own.
    pub(super) fetches_ahead: bool,
    /// The number of teams of the block, and this team's number.
    pub(super) teams: u32,
    pub(super) number: u32,
    /// The warp's part of the features, and of the components.
    pub(super) features: u32,
    pub(super) components: u32,
}

impl Member {
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

    #[inline(always)]
    pub(super) fn of_features(team: Team) -> Self {
        Self { fetches_ahead: false, ..Self::of(Team { components: 1, ..team }, true) }
    }

    #[inline(always)]
    pub(super) fn of_components(team: Team) -> Self {
        Self::of(Team { features: 1, ..team }, false)
    }

    #[inline(always)]
    pub(super) fn of_both(team: Team) -> Self {
        Self::of(team, true)
    }

    #[inline(always)]
    fn of(team: Team, adds_exponents: bool) -> Self {
        // At least one part: the compiler then omits checks for division by zero.
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

    /// The warp of the block that has the given parts for this warp's samples.
    #[inline(always)]
    pub(super) fn other(&self, features: u32, components: u32) -> usize {
        (self.number * self.team.warps() + components * self.team.features + features) as usize
    }

    /// The number of its team's barrier, and then its threads.
    #[inline(always)]
    pub(super) fn barrier(&self) -> u32 {
        1 + self.number
    }

    #[inline(always)]
    pub(super) fn threads(&self) -> u32 {
        self.team.warps() * WARP
    }

    #[inline(always)]
    pub(super) fn is_first(&self) -> bool {
        self.features == 0 && self.components == 0
    }
}
