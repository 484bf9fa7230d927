/** The user that every sandbox has, wherever it is made. */
export const USER = { name: 'user', uid: 1000, gid: 1000, home: '/home/user' };
