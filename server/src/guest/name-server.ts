/**
 * Where the guest answers questions for names, in every sandbox. `guest/src/egress/resolver.rs` has it too.
 */
export const NAME_SERVER = '127.0.0.53';
