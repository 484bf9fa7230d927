export { USER } from '../../host/sandbox-user.ts';
