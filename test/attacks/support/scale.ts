/**
 * How much larger than with `npm test` the attacks are that cost much: `npm run attacks -- --suites` has 10,
 * the size of a serious attack.
 */
export const SCALE = Number(process.env['CAY_ATTACK_SCALE'] ?? 1);
